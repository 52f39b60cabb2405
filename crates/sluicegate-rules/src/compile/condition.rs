//! The requests that a rule is about: `only_if`.
//!
//! The conditions of a rule are compared in one order, cheap ones first: descriptor, method, path, host, header fields, query, fields of the
//! body, client, tier, and `not`. An explanation names the first that fails.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::PathReading;
use sluicegate_tower::limits::path::{Fold, PathPattern, Purpose, Sense, spellings};
use sluicegate_tower::request_fields::{FieldKey, RequestFields};
use sluicegate_tower::{KeyExtractor, PeerIp};
use smallvec::SmallVec;

use super::descriptor::{DescriptorPattern, NotDescribed};
use super::keys::Keys;
use super::networks;
use super::plan::TierPlan;
use super::refuse;
use super::tiers::AllTiers;
use crate::at::At;
use crate::descriptor::RequestDescriptor;
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{Condition, FieldValues, OneOrMany, written};

/// The conditions that a request must meet, all of them.
#[derive(Default)]
pub(super) struct Matcher {
    /// The pattern that a descriptor must match. A rule without it is about requests alone.
    pub descriptor: Option<DescriptorPattern>,
    /// Patterns of which one must match; `None` if the rule says nothing about the path.
    pub paths: Option<Vec<PathPattern>>,
    /// Whether the paths must match, or, within a `not`, must not.
    sense: Sense,
    /// Methods of which one must match, in capitals as they are sent; an empty list accepts all.
    pub methods: Vec<Method>,
    /// Hosts in lower case.
    pub hosts: Vec<String>,
    /// Header fields that must all be there, each with this value.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Query parameters that must all be there, as they decode: `a+b` and `a%20b` are one value.
    pub query: Vec<(String, String)>,
    /// Fields of the body that must all be there, each with this text.
    pub body: Vec<(String, String)>,
    /// The networks that the client has to be in.
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

/// Networks that a client is to be in.
struct Client {
    is_within: Box<dyn Fn(RequestView<'_>) -> bool + Send + Sync>,
    key: Arc<dyn KeyExtractor>,
    shown: String,
}

/// The way in which the conditions of a section compare paths.
#[derive(Clone, Copy)]
pub(crate) struct Comparison {
    pub purpose: Purpose,
    pub reading: PathReading,
}

impl Comparison {
    pub(super) fn fold(self, sense: Sense) -> Fold {
        self.reading.fold(self.purpose, sense)
    }
}

/// A path that a request may mean: `path` is compared with patterns that must match, `where_not` with patterns that must not.
pub(super) struct MeantPath<'a> {
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

    pub(super) fn path(&self, sense: Sense) -> &str {
        match (&self.where_not, sense) {
            (Some(path), Sense::NotIn) => path,
            _ => &self.path,
        }
    }
}

/// A request, the paths that it may mean, and those of its tiers that were asked for.
pub(super) struct RequestFacts<'a> {
    pub request: RequestView<'a>,
    /// The descriptor that the request stands for, if it does.
    pub described: Option<&'a RequestDescriptor>,
    pub readings: SmallVec<[MeantPath<'a>; 1]>,
    /// Places of plans and of tiers: reading one may mean verifying a token, and many rules ask for it.
    tiers: RefCell<SmallVec<[(usize, usize); 2]>>,
    /// Looked for once, however many rules ask for it.
    host: OnceCell<Option<Cow<'a, str>>>,
}

/// The condition that does not hold, and the value that it was compared with. Values of header fields and of the query are not shown: they
/// may be secrets.
pub(super) enum Mismatch<'a> {
    /// The rule is about descriptors and the request is none, or the other way round.
    Kind {
        is_descriptor: bool,
    },
    Descriptor(NotDescribed<'a>),
    Method(&'a Method, &'a [Method]),
    Path(&'a str, &'a [PathPattern]),
    Host(Option<&'a str>, &'a [String]),
    Header(&'a HeaderName, bool),
    Query(&'a str, bool),
    Body(&'a str, bool),
    Client(Option<String>, &'a str),
    Tier(&'a TierPlan, usize, &'a [usize]),
    Not,
}

impl<'a> RequestFacts<'a> {
    /// Takes the path apart only if a rule `reads_path`.
    pub(super) fn of(request: RequestView<'a>, reads_path: bool, comparison: Comparison) -> Self {
        let path = if reads_path { request.path() } else { "" };
        let readings = spellings(path, comparison.purpose).into_iter();
        let readings = readings.map(|path| MeantPath::of(path, comparison)).collect();
        let described = RequestDescriptor::of(request);
        Self { request, described, readings, tiers: RefCell::default(), host: OnceCell::new() }
    }

    /// The place of the tier that the request is in.
    pub(super) fn tier(&self, plan: &TierPlan) -> usize {
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
    pub(super) fn host(&self) -> Option<&str> {
        let host = self.host.get_or_init(|| {
            let host = host_of(self.request)?;
            let host = host.strip_suffix('.').unwrap_or(host);
            let has_capitals = host.bytes().any(|byte| byte.is_ascii_uppercase());
            Some(if has_capitals { host.to_ascii_lowercase().into() } else { host.into() })
        });
        host.as_deref()
    }

    /// The parameters of the query, however they are encoded.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (String, String)> + 'a {
        let query = self.request.uri.query().unwrap_or_default();
        query.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decoded(name), form_decoded(value))
        })
    }
}

impl Matcher {
    pub(super) fn of(
        condition: &Condition,
        (keys, tiers): (&Keys, &AllTiers),
        comparison: Comparison,
        problems: &mut Problems<'_>,
    ) -> Self {
        refuse_mixture(condition, problems);
        Self::in_sense(condition, (keys, tiers), (comparison, Sense::In), problems)
    }

    fn in_sense(
        condition: &Condition,
        (keys, tiers): (&Keys, &AllTiers),
        (comparison, sense): (Comparison, Sense),
        problems: &mut Problems<'_>,
    ) -> Self {
        refuse_empty(condition, problems);
        let texts = |list: &Option<At<_>>| list.as_ref().map(At::all).unwrap_or_default();
        let paths = condition.path.as_ref().map(At::all);
        let paths = paths.map(|paths| {
            paths.iter().filter_map(|path| pattern(path, comparison.fold(sense), problems)).collect()
        });
        let methods = texts(&condition.method);
        let methods = methods.iter().filter_map(|method| self::method(method, problems)).collect();
        let hosts = texts(&condition.host);
        let hosts = hosts.iter().filter_map(|host| self::host(host, problems)).collect();
        let headers = condition.header.as_ref().map(|fields| headers(fields, problems)).unwrap_or_default();
        let query = condition.query.as_ref().map_or(&[][..], |fields| &fields.value.0);
        let query = query.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect();
        let body = condition.body.as_ref().map(|fields| body(fields, problems)).unwrap_or_default();
        let client = texts(&condition.client);
        let client = if client.is_empty() { None } else { within(&client, keys, problems) };
        let named = condition.tier.as_ref().map_or(&[][..], |named| &named.value.0);
        let in_tiers =
            named.iter().filter_map(|(plan, wanted)| in_tiers(plan, wanted, tiers, problems)).collect();
        let opposite = if sense == Sense::In { Sense::NotIn } else { Sense::In };
        let not = condition
            .not
            .as_ref()
            .map(|not| Box::new(Self::in_sense(&not.value, (keys, tiers), (comparison, opposite), problems)));
        let descriptor = DescriptorPattern::of(condition, problems);
        Self { descriptor, paths, sense, methods, hosts, headers, query, body, client, tiers: in_tiers, not }
    }

    /// Whether it has no condition, so that it holds for every request.
    pub(super) fn is_empty(&self) -> bool {
        let Self { descriptor, paths, sense: _, methods, hosts, headers, query, body, client, tiers, not } =
            self;
        descriptor.is_none()
            && paths.is_none()
            && methods.is_empty()
            && hosts.is_empty()
            && headers.is_empty()
            && query.is_empty()
            && body.is_empty()
            && client.is_none()
            && tiers.is_empty()
            && not.is_none()
    }

    /// Whether it says anything about the path.
    pub(super) fn reads_path(&self) -> bool {
        self.paths.is_some() || self.not.as_ref().is_some_and(|not| not.reads_path())
    }

    /// Whether it says anything about the host.
    pub(super) fn reads_host(&self) -> bool {
        !self.hosts.is_empty() || self.not.as_ref().is_some_and(|not| not.reads_host())
    }

    /// The first condition that does not hold in this reading of the path. What a `not` spares is spared in this reading only.
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

    /// [`mismatch`](Self::mismatch) for a rule that was found by this path, which is not compared again.
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
        let is_met = |paths: &Vec<PathPattern>| paths.iter().any(|one| one.matches(path));
        if let Some(paths) = self.paths.as_ref().filter(|paths| compares_path && !is_met(paths)) {
            return Some(Mismatch::Path(path, paths));
        }
        if !self.hosts.is_empty() {
            let host = asking.host();
            if !host.is_some_and(|host| self.hosts.iter().any(|known| known == host)) {
                return Some(Mismatch::Host(host_of(*request), &self.hosts));
            }
        }
        for (name, value) in &self.headers {
            if !request.headers.get_all(name).iter().any(|found| found == value) {
                return Some(Mismatch::Header(name, request.headers.contains_key(name)));
            }
        }
        for (name, value) in &self.query {
            if !asking.parameters().any(|(found, with)| found == *name && with == *value) {
                return Some(Mismatch::Query(name, asking.parameters().any(|(found, _)| found == *name)));
            }
        }
        for (field, value) in &self.body {
            let found = RequestFields::of(*request).and_then(|fields| fields.shown(field));
            if found.as_deref() != Some(value) {
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
        // A condition within another has the kind of the outer one.
        self.not
            .as_ref()
            .filter(|not| not.mismatch_of(asking, reading, true).is_none())
            .map(|_| Mismatch::Not)
    }
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

/// Names what is wanted, for a reader.
fn any(wanted: &[impl fmt::Display]) -> String {
    let shown: Vec<_> = wanted.iter().take(8).map(ToString::to_string).collect();
    let more = if wanted.len() > shown.len() { ", or others" } else { "" };
    format!("{}{more}", shown.join(" or "))
}

fn pattern(path: &At<String>, fold: Fold, problems: &mut Problems<'_>) -> Option<PathPattern> {
    PathPattern::new(&path.value, fold).map_err(|error| problems.error(path.place, error.problem())).ok()
}

/// Decodes a part of a query.
fn form_decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Refuses empty lists: such a condition would hold for no request, or for every one.
fn refuse_empty(condition: &Condition, problems: &mut Problems<'_>) {
    let lists = [&condition.path, &condition.method, &condition.host, &condition.client, &condition.domain];
    let tiers = condition.tier.iter().flat_map(|tiers| tiers.value.0.iter().map(|(_, list)| list));
    let lists = lists.into_iter().flatten().chain(tiers);
    for list in lists.filter(|list| list.all().iter().all(|text| text.value.is_empty())) {
        problems.error(list.place, "an empty list says nothing: leave the word out, or write what is meant");
    }
    for fields in [&condition.header, &condition.query, &condition.body].into_iter().flatten() {
        if fields.value.0.is_empty() {
            problems
                .error(fields.place, "no field is named here: leave the word out, or write what is meant");
        }
    }
    if let Some(tiers) = condition.tier.as_ref().filter(|tiers| tiers.value.0.is_empty()) {
        problems.error(tiers.place, "no tiers are named here: write them by their name, as { plan: free }");
    }
}

/// Refuses a condition about both: a descriptor has no path, and a request no domain.
fn refuse_mixture(condition: &Condition, problems: &mut Problems<'_>) {
    let is_about_descriptors = condition.is_about_descriptors();
    let mut inner = Some(condition);
    while let Some(condition) = inner {
        if is_about_descriptors {
            refuse(written!(condition; path method host header query body tier), problems, |word| {
                format!(
                    "{word:?} says nothing of descriptors: name an entry of the descriptor, or leave it out"
                )
            });
        } else if condition.is_about_descriptors() {
            let [domain, descriptor] = written!(condition; domain descriptor);
            let place = domain.1.or(descriptor.1);
            problems.error(
                place,
                "this is about requests: write \"domain\" outside of \"not\", too, if descriptors are meant",
            );
        }
        inner = condition.not.as_ref().map(|not| &*not.value);
    }
}

/// The tiers of one plan that a condition names.
fn in_tiers(
    name: &At<String>,
    wanted: &At<OneOrMany>,
    tiers: &AllTiers,
    problems: &mut Problems<'_>,
) -> Option<InTiers> {
    let Some(set) = tiers.get(&name.value) else {
        let mut names: Vec<_> = tiers.keys().map(|name| &**name).collect();
        names.sort_unstable();
        let instead = instead_of(&name.value, &names);
        problems.error(name.place, format!("there are no tiers {:?}{instead}", short(&name.value)));
        return None;
    };
    let plan = &set.as_ref()?.plan;
    let mut place = |tier: &At<String>| {
        let found = plan.tiers.iter().position(|known| *known == tier.value);
        if found.is_none() {
            let names: Vec<_> = plan.tiers.iter().map(|tier| &**tier).collect();
            let instead = instead_of(&tier.value, &names);
            let text = format!("{:?} is not a tier of {:?}{instead}", short(&tier.value), plan.name);
            problems.error(tier.place, text);
        }
        found
    };
    let wanted = wanted.all().iter().filter_map(&mut place).collect();
    Some(InTiers { plan: Arc::clone(plan), wanted })
}

fn host(host: &At<String>, problems: &mut Problems<'_>) -> Option<String> {
    let parsed: Option<http::uri::Authority> = host.value.parse().ok();
    if !host.value.contains('*') && parsed.is_some_and(|parsed| parsed.host() == host.value) {
        // As in a request, a dot at the end marks the name as complete.
        return Some(host.value.strip_suffix('.').unwrap_or(&host.value).to_ascii_lowercase());
    }
    let shown = short(&host.value);
    problems.error(
        host.place,
        format!("{shown:?} is not a host: write it alone, as api.example.org, without scheme, port or '*'"),
    );
    None
}

fn method(method: &At<String>, problems: &mut Problems<'_>) -> Option<Method> {
    let found = Method::from_bytes(method.value.as_bytes()).ok();
    let found = found.filter(|found| found.as_str() == found.as_str().to_ascii_uppercase());
    if found.is_none() {
        let text = format!("{:?} is not a method: write it in capitals, as GET", short(&method.value));
        problems.error(method.place, text);
    }
    found
}

fn headers(fields: &At<FieldValues>, problems: &mut Problems<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut all = Vec::new();
    for (name, value) in &fields.value.0 {
        match (name.value.parse(), HeaderValue::from_str(&value.value)) {
            (Ok(name), Ok(value)) => all.push((name, value)),
            (Err(_), _) => {
                let text = format!("{:?} is not the name of a header field", short(&name.value));
                problems.error(name.place, text);
            }
            (_, Err(_)) => problems.error(value.place, "no header field can have this value"),
        }
    }
    all
}

fn body(fields: &At<FieldValues>, problems: &mut Problems<'_>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (field, value) in &fields.value.0 {
        match FieldKey::new(&field.value) {
            Ok(_) => all.push((field.value.clone(), value.value.clone())),
            Err(error) => problems.error(field.place, error.problem()),
        }
    }
    all
}

fn within(networks: &[At<String>], keys: &Keys, problems: &mut Problems<'_>) -> Option<Client> {
    let within = networks::of(networks, problems)?;
    if let Some(everything) = within.everything() {
        let kind = if everything.contains(':') { "IPv6" } else { "IPv4" };
        let text =
            format!("every {kind} address is in {everything}: leave this out if all clients are meant");
        problems.warning(networks.first()?.place, text);
    }
    let shown = any(&networks.iter().map(|network| &network.value).collect::<Vec<_>>());
    Some(match keys.client() {
        Some(client) => {
            Client { is_within: Box::new(client.within(within)), key: Arc::new(client.clone()), shown }
        }
        None => {
            Client { is_within: Box::new(PeerIp::new().within(within)), key: Arc::new(PeerIp::new()), shown }
        }
    })
}

/// The host that a request names, without its port.
fn host_of<'a>(request: RequestView<'a>) -> Option<&'a str> {
    let authority = match request.uri.host() {
        Some(host) => return Some(host),
        None => request.headers.get(header::HOST)?.to_str().ok()?,
    };
    let end = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
    Some(&authority[..end.unwrap_or(authority.len())])
}
