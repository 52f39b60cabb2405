//! A request in the form that conditions are compared with: [`RequestFacts`].

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};

use http::header;
use percent_encoding::percent_decode_str;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::PathReading;
use sluicegate_tower::limits::path::{Fold, Purpose, Sense, spellings};
use smallvec::SmallVec;

use crate::compile::plan::TierPlan;
use crate::descriptor::RequestDescriptor;

/// The way in which the conditions of a section compare paths.
#[derive(Clone, Copy)]
pub(crate) struct Comparison {
    pub purpose: Purpose,
    pub reading: PathReading,
}

impl Comparison {
    pub(in crate::compile) fn fold(self, sense: Sense) -> Fold {
        self.reading.fold(self.purpose, sense)
    }
}

/// A path that a request may mean: `path` is compared with patterns that must match, `where_not` with patterns that must not.
pub(in crate::compile) struct MeantPath<'a> {
    path: Cow<'a, str>,
    /// `None` if it equals `path`.
    where_not: Option<Cow<'a, str>>,
}

impl<'a> MeantPath<'a> {
    fn of(path: Cow<'a, str>, comparison: Comparison) -> Self {
        let [fold, where_not] = [Sense::In, Sense::NotIn].map(|sense| comparison.fold(sense));
        let where_not = (where_not != fold).then(|| where_not.apply(path.clone()));
        Self { path: fold.apply(path), where_not }
    }

    pub(in crate::compile) fn path(&self, sense: Sense) -> &str {
        match (&self.where_not, sense) {
            (Some(path), Sense::NotIn) => path,
            _ => &self.path,
        }
    }
}

/// A request, the paths that it may mean, and its tiers that were already read.
pub(in crate::compile) struct RequestFacts<'a> {
    pub request: RequestView<'a>,
    /// The descriptor that the request represents, if any.
    pub described: Option<&'a RequestDescriptor>,
    pub readings: SmallVec<[MeantPath<'a>; 1]>,
    /// Indices of plans and tiers: reading a tier may mean verifying a token, and many rules need it.
    tiers: RefCell<SmallVec<[(usize, usize); 2]>>,
    /// Read once, however many rules need it.
    host: OnceCell<Option<Cow<'a, str>>>,
}

impl<'a> RequestFacts<'a> {
    /// Parses the path only if a rule `reads_path`.
    pub(in crate::compile) fn of(request: RequestView<'a>, reads_path: bool, comparison: Comparison) -> Self {
        let path = if reads_path { request.path() } else { "" };
        let readings = spellings(path, comparison.purpose).into_iter();
        let readings = readings.map(|path| MeantPath::of(path, comparison)).collect();
        let described = RequestDescriptor::of(request);
        Self { request, described, readings, tiers: RefCell::default(), host: OnceCell::new() }
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

    /// The parameters of the query, however they are encoded.
    pub(in crate::compile) fn parameters(&self) -> impl Iterator<Item = (String, String)> + 'a {
        let query = self.request.uri.query().unwrap_or_default();
        query.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decoded(name), form_decoded(value))
        })
    }
}

/// Decodes a part of a query.
fn form_decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// The host that a request names, without its port.
pub(super) fn host_of<'a>(request: RequestView<'a>) -> Option<&'a str> {
    let authority = match request.uri.host() {
        Some(host) => return Some(host),
        None => request.headers.get(header::HOST)?.to_str().ok()?,
    };
    let end = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
    Some(&authority[..end.unwrap_or(authority.len())])
}
