//! A request in the form that conditions are compared with: [`RequestFacts`], and the [readings](MeantPath) of its path.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;

use http::header;
use percent_encoding::percent_decode_str;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::PathReading;
use sluicegate_tower::limits::path::{Fold, Purpose, Sense, is_plain, spellings};
use smallvec::SmallVec;

use crate::compile::by::TierPlan;
use crate::descriptor::RequestDescriptor;

/// The way in which the conditions of a section compare paths.
#[derive(Clone, Copy, Default)]
pub(crate) struct Comparison {
    pub purpose: Purpose,
    /// The ignored differences where a path must match, and where it must not.
    folds: [Fold; 2],
}

impl Comparison {
    pub(in crate::compile) fn new(purpose: Purpose, reading: PathReading) -> Self {
        Self { purpose, folds: [Sense::In, Sense::NotIn].map(|sense| reading.fold(purpose, sense)) }
    }

    pub(in crate::compile) fn fold(self, sense: Sense) -> Fold {
        let [within, where_not] = self.folds;
        if sense == Sense::In { within } else { where_not }
    }

    /// Whether a path clearly means only itself, like most paths.
    #[inline]
    pub(in crate::compile) fn is_only_reading(self, path: &str) -> bool {
        self.folds.iter().all(|fold| fold.is_exact()) && is_plain(path)
    }

    /// The only reading of a path, if it clearly has only one, like most paths.
    pub(in crate::compile) fn only_reading(self, path: &str) -> Option<MeantPath<'_>> {
        is_plain(path).then(|| MeantPath::of(Cow::Borrowed(path), self))
    }

    /// The paths that a request with this path may mean.
    pub(in crate::compile) fn readings(self, path: &str) -> Readings<'_> {
        spellings(path, self.purpose).into_iter().map(|path| MeantPath::of(path, self)).collect()
    }
}

/// The paths that a request may mean; most requests have one.
pub(in crate::compile) type Readings<'a> = SmallVec<[MeantPath<'a>; 1]>;

/// A path that a request may mean: `path` is compared with patterns that must match, `where_not` with patterns that must not.
pub(in crate::compile) struct MeantPath<'a> {
    path: Cow<'a, str>,
    /// `None` if it equals `path`.
    where_not: Option<Cow<'a, str>>,
}

impl<'a> MeantPath<'a> {
    fn of(path: Cow<'a, str>, comparison: Comparison) -> Self {
        let [fold, where_not] = comparison.folds;
        let where_not = (where_not != fold).then(|| where_not.apply(path.clone()));
        Self { path: fold.apply(path), where_not }
    }

    #[inline]
    pub(in crate::compile) fn path(&self, sense: Sense) -> &str {
        match (&self.where_not, sense) {
            (Some(path), Sense::NotIn) => path,
            _ => &self.path,
        }
    }
}

/// A request, and the values that were already read from it.
pub(in crate::compile) struct RequestFacts<'a> {
    pub request: RequestView<'a>,
    /// The descriptor that the request represents, if any.
    pub described: Option<&'a RequestDescriptor>,
    /// Indices of plans and tiers: reading a tier may mean verifying a token, and many rules need it.
    tiers: RefCell<SmallVec<[(usize, usize); 2]>>,
    /// Read once, however many rules need it.
    host: OnceCell<Option<Cow<'a, str>>>,
    query: OnceCell<QueryParameters<'a>>,
}

/// The parameters of a query, however they are encoded.
#[derive(Default)]
pub(in crate::compile) struct QueryParameters<'a> {
    pairs: HashSet<(Cow<'a, str>, Cow<'a, str>)>,
    names: HashSet<Cow<'a, str>>,
}

impl<'a> RequestFacts<'a> {
    #[inline]
    pub(in crate::compile) fn of(request: RequestView<'a>) -> Self {
        let described = RequestDescriptor::of(request);
        Self { request, described, tiers: RefCell::default(), host: OnceCell::new(), query: OnceCell::new() }
    }

    /// The index of the request's tier.
    pub(in crate::compile) fn tier(&self, plan: &TierPlan) -> usize {
        let known = self.tiers.borrow().iter().find(|(known, _)| *known == plan.place).copied();
        known.map_or_else(
            || {
                let tier = plan.tier(self.request);
                self.tiers.borrow_mut().push((plan.place, tier));
                tier
            },
            |(_, tier)| tier,
        )
    }

    /// The host that the request names, without its port and in lower case.
    pub(in crate::compile) fn host(&self) -> Option<&str> {
        let host = self.host.get_or_init(|| {
            let host = host_of(self.request)?;
            let host = host.strip_suffix('.').unwrap_or(host);
            let has_capitals = host.bytes().any(|byte| byte.is_ascii_uppercase());
            Some(if has_capitals { host.to_ascii_lowercase().into() } else { host.into() })
        });
        host.as_deref()
    }

    /// The parameters of the query, decoded once, however many rules need them.
    pub(in crate::compile) fn query(&self) -> &QueryParameters<'a> {
        self.query.get_or_init(|| self.request.uri.query().map(QueryParameters::of).unwrap_or_default())
    }
}

impl<'a> QueryParameters<'a> {
    pub(in crate::compile) fn of(query: &'a str) -> Self {
        let mut all = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (form_decoded(name), form_decoded(value));
            all.names.insert(name.clone());
            all.pairs.insert((name, value));
        }
        all
    }

    /// The names and values, each pair once.
    pub(in crate::compile) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The values of the parameters with this name.
    pub(in crate::compile) fn values<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        let is_there = self.has_name(name);
        self.pairs().filter(move |(own, _)| is_there && *own == name).map(|(_, value)| value)
    }

    /// Whether a parameter of this name is there.
    pub(in crate::compile) fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// Decodes a part of a query.
fn form_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['+', '%']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned())
}

/// The host that a request names, without its port.
pub(in crate::compile) fn host_of<'a>(request: RequestView<'a>) -> Option<&'a str> {
    let authority = match request.uri.host() {
        Some(host) => return Some(host),
        None => request.headers.get(header::HOST)?.to_str().ok()?,
    };
    let end = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
    Some(&authority[..end.unwrap_or(authority.len())])
}
