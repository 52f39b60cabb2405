//! The requests that a rule is about: `only_if`.
//!
//! The conditions of a rule are compared in one order, cheap ones first: descriptor, method, path, host, header fields, query, fields of the
//! body, client, tier, and `not`. An explanation names the first that fails.

mod facts;
mod read;

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, Method};
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::Sense;
use sluicegate_tower::request_fields::RequestFields;

pub(super) use self::facts::RequestFacts;
use super::by::TierPlan;
use super::descriptor::{DescriptorPattern, NotDescribed};
use super::keys::host_of;
use super::paths::MeantPath;
use super::pattern::{FieldPattern, PathWanted, TextPattern};
use crate::shown::short;

/// The conditions that a request must meet, all of them.
#[derive(Default)]
pub(super) struct Matcher {
    /// The pattern that a descriptor must match. A rule without it is only about requests.
    pub descriptor: Option<DescriptorPattern>,
    /// Patterns; one of them must match. `None` if the rule does not restrict the path.
    pub paths: Option<Vec<PathWanted>>,
    /// Whether the paths must match, or, within a `not`, must not.
    sense: Sense,
    /// Methods in capitals; one of them must match. An empty list accepts all.
    pub methods: Vec<Method>,
    /// Hosts in lower case; one of them must match.
    pub hosts: Vec<TextPattern>,
    /// Header fields, all of which must meet their patterns.
    pub headers: Vec<(HeaderName, FieldPattern)>,
    /// The same for query parameters, decoded: `a+b` and `a%20b` are one value.
    pub query: Vec<(String, FieldPattern)>,
    /// The same for fields of the body.
    pub body: Vec<(String, FieldPattern)>,
    /// Whether a field of the body that cannot be read meets its pattern: in doubt, limits apply.
    takes_unreadable: bool,
    /// The networks that must include the client.
    client: Option<Client>,
    pub tiers: Vec<InTiers>,
    /// The condition that must not hold as a whole.
    not: Option<Box<Self>>,
}

/// Tiers of a plan. A request must be in one of them.
pub(super) struct InTiers {
    pub plan: Arc<TierPlan>,
    pub wanted: Vec<usize>,
}

/// Networks that must include a client.
struct Client {
    is_within: Box<dyn Fn(RequestView<'_>) -> bool + Send + Sync>,
    key: Arc<dyn KeyExtractor>,
    shown: String,
}

/// The condition that fails, and the value that it was compared with. Values of header fields and of the query are not shown: they
/// may be secrets.
pub(super) enum Mismatch<'a> {
    /// The rule is about descriptors and the request is not a descriptor, or the reverse.
    Kind {
        is_descriptor: bool,
    },
    Descriptor(NotDescribed<'a>),
    Method(&'a Method, &'a [Method]),
    Path(&'a str, &'a [PathWanted]),
    Host(Option<&'a str>, &'a [TextPattern]),
    Header(&'a HeaderName, bool),
    Query(&'a str, bool),
    Body(&'a str, bool),
    Client(Option<String>, &'a str),
    Tier(&'a TierPlan, usize, &'a [usize]),
    Not,
}

impl Matcher {
    /// The number of its conditions. Without any, it holds for every request.
    pub(super) fn size(&self) -> usize {
        let Self { descriptor, paths, methods, hosts, headers, query, body, client, tiers, not, .. } = self;
        let single = [
            descriptor.is_some(),
            paths.is_some(),
            !methods.is_empty(),
            !hosts.is_empty(),
            client.is_some(),
            not.is_some(),
        ];
        let single = single.into_iter().filter(|is_there| *is_there).count();
        single + headers.len() + query.len() + body.len() + tiers.len()
    }

    /// Whether it surely holds for each request for which the other holds. It compares paths, methods and hosts only.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let comparable = [self.paths.is_some(), !self.methods.is_empty(), !self.hosts.is_empty()];
        let has_others = self.size() > comparable.into_iter().filter(|is_there| *is_there).count();
        let covers_paths = self.paths.as_ref().is_none_or(|own| {
            let other = other.paths.as_ref().filter(|paths| !paths.is_empty());
            other.is_some_and(|all| all.iter().all(|path| own.iter().any(|own| own.covers(path))))
        });
        !has_others
            && other.descriptor.is_none()
            && covers_paths
            && covers(&self.methods, &other.methods)
            && covers(&self.hosts, &other.hosts)
    }

    /// Whether it restricts the path.
    pub(super) fn reads_path(&self) -> bool {
        self.paths.is_some() || self.not.as_ref().is_some_and(|not| not.reads_path())
    }

    /// Whether it restricts the host.
    pub(super) fn reads_host(&self) -> bool {
        !self.hosts.is_empty() || self.not.as_ref().is_some_and(|not| not.reads_host())
    }

    /// Whether it looks at a field of the body that cannot be read.
    pub(super) fn is_in_doubt(&self, request: RequestView<'_>) -> bool {
        self.body.iter().any(|(field, _)| is_unreadable(request, field))
            || self.not.as_ref().is_some_and(|not| not.is_in_doubt(request))
    }

    /// The first condition that fails in this reading of the path. A `not` applies in this reading only.
    pub(super) fn mismatch<'a>(
        &'a self,
        asking: &'a RequestFacts<'_>,
        reading: &'a MeantPath<'_>,
    ) -> Option<Mismatch<'a>> {
        let is_descriptor = asking.described.is_some();
        if self.descriptor.is_some() != is_descriptor {
            return Some(Mismatch::Kind { is_descriptor });
        }
        self.mismatch_of(asking, reading, true)
    }

    /// [`mismatch`](Self::mismatch) for a rule that was found by this path; the path is not compared again.
    pub(super) fn other_mismatch<'a>(
        &'a self,
        asking: &'a RequestFacts<'_>,
        reading: &'a MeantPath<'_>,
    ) -> Option<Mismatch<'a>> {
        self.mismatch_of(asking, reading, false)
    }

    fn mismatch_of<'a>(
        &'a self,
        asking: &'a RequestFacts<'_>,
        reading: &'a MeantPath<'_>,
        compares_path: bool,
    ) -> Option<Mismatch<'a>> {
        let (request, path) = (&asking.request, reading.path(self.sense));
        if let (Some(pattern), Some(described)) = (&self.descriptor, asking.described)
            && let Some(mismatch) = pattern.mismatch(described)
        {
            return Some(Mismatch::Descriptor(mismatch));
        }
        if !self.methods.is_empty() && !self.methods.contains(request.method) {
            return Some(Mismatch::Method(request.method, &self.methods));
        }
        let is_met = |paths: &Vec<PathWanted>| paths.iter().any(|one| one.matches(path));
        if let Some(paths) = self.paths.as_ref().filter(|paths| compares_path && !is_met(paths)) {
            return Some(Mismatch::Path(path, paths));
        }
        if !self.hosts.is_empty() {
            let host = asking.host();
            let is_of = |host: &str| self.hosts.iter().any(|known| known.matches(host));
            if !host.is_some_and(is_of) {
                return Some(Mismatch::Host(host_of(*request), &self.hosts));
            }
        }
        for (name, wanted) in &self.headers {
            let texts =
                request.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            if !wanted.is_met_by(texts) {
                return Some(Mismatch::Header(name, request.headers.contains_key(name)));
            }
        }
        for (name, wanted) in &self.query {
            if !wanted.is_met_by(asking.query().values(name)) {
                return Some(Mismatch::Query(name, asking.query().has_name(name)));
            }
        }
        for (field, wanted) in &self.body {
            let found = RequestFields::of(*request).and_then(|fields| fields.text(field));
            let is_met = match is_unreadable(*request, field) {
                true => self.takes_unreadable,
                false => wanted.is_met_by(found),
            };
            if !is_met {
                return Some(Mismatch::Body(field, found.is_some()));
            }
        }
        if let Some(client) = self.client.as_ref().filter(|client| !(client.is_within)(*request)) {
            let key = client.key.extract(*request).now().ok().and_then(Result::ok);
            return Some(Mismatch::Client(key.map(|key| key.shown().to_string()), &client.shown));
        }
        for InTiers { plan, wanted } in &self.tiers {
            let tier = asking.tier(plan);
            if !wanted.contains(&tier) {
                return Some(Mismatch::Tier(plan, tier, wanted));
            }
        }
        // An inner condition has the kind of the outer one.
        self.not
            .as_ref()
            .filter(|not| not.mismatch_of(asking, reading, true).is_none())
            .map(|_| Mismatch::Not)
    }
}

fn is_unreadable(request: RequestView<'_>, field: &str) -> bool {
    RequestFields::of(request).is_some_and(|fields| fields.may_be(field, |_| false))
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_there = |is_there| if is_there { "is not what the rule wants" } else { "is missing" };
        match self {
            Self::Kind { is_descriptor: true } => f.write_str("the rule is not about descriptors"),
            Self::Kind { is_descriptor: false } => f.write_str("the rule is about descriptors"),
            Self::Descriptor(mismatch) => mismatch.fmt(f),
            Self::Method(method, wanted) => write!(f, "method is {method}, the rule wants {}", any(wanted)),
            Self::Path(path, wanted) => write!(f, "path {} does not match {}", short(path), any(wanted)),
            Self::Host(None, wanted) => write!(f, "no host is named, the rule wants {}", any(wanted)),
            Self::Host(Some(host), wanted) => {
                write!(f, "host is {}, the rule wants {}", short(host), any(wanted))
            }
            Self::Header(name, there) => write!(f, "header {name} {}", is_there(*there)),
            Self::Query(name, there) => write!(f, "query parameter {} {}", short(name), is_there(*there)),
            Self::Body(field, there) => write!(f, "field {} of the body {}", short(field), is_there(*there)),
            Self::Client(None, networks) => write!(f, "client is not known, the rule wants {networks}"),
            Self::Client(Some(client), networks) => write!(f, "client {client} is not in {networks}"),
            Self::Tier(plan, tier, wanted) => {
                let wanted: Vec<_> = wanted.iter().map(|tier| &plan.tiers[*tier]).collect();
                write!(f, "tier of {} is {}, the rule wants {}", plan.name, plan.tiers[*tier], any(&wanted))
            }
            Self::Not => f.write_str("all of its \"not\" holds"),
        }
    }
}

/// Names the accepted values, for a reader.
fn any(wanted: &[impl fmt::Display]) -> String {
    let shown: Vec<_> = wanted.iter().take(8).map(ToString::to_string).collect();
    let more = if wanted.len() > shown.len() { ", or others" } else { "" };
    format!("{}{more}", shown.join(" or "))
}

/// Whether a list of what may be covers another; an empty one accepts all.
fn covers<T: PartialEq>(list: &[T], other: &[T]) -> bool {
    list.is_empty() || (!other.is_empty() && other.iter().all(|one| list.contains(one)))
}
