//! Which requests a rule is about: `only_if`.

use http::{HeaderName, HeaderValue, Method, header};
use sluicegate_core::ConfigError;
use sluicegate_tower::PeerIp;
use sluicegate_tower::key::{Networks, RequestView};

use super::keys::Keys;
use super::paths::{PathPatterns, Paths, form_decoded};
use crate::at::At;
use crate::error::Problems;
use crate::read::short;
use crate::schema::{Condition, Fields};

/// What must hold of a request; all of it must. The paths are numbers of the patterns that all rules share.
#[derive(Default)]
pub(super) struct Matcher {
    paths: Option<Vec<usize>>,
    methods: Vec<Method>,
    hosts: Vec<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
    query: Vec<(String, String)>,
    client: Option<Within>,
    not: Option<Box<Self>>,
}

impl Matcher {
    pub(super) fn of(
        condition: &Condition,
        patterns: &mut PathPatterns,
        keys: &Keys,
        problems: &mut Problems<'_>,
    ) -> Self {
        refuse_empty(condition, problems);
        let texts = |list: &Option<At<_>>| list.as_ref().map(At::all).unwrap_or_default();
        let paths = condition.path.as_ref().map(At::all);
        let paths = paths.map(|paths| paths.iter().filter_map(|path| patterns.add(path, problems)).collect());
        let methods = texts(&condition.method);
        let methods = methods.iter().filter_map(|method| self::method(method, problems)).collect();
        let hosts = texts(&condition.host);
        let hosts = hosts.iter().filter_map(|host| self::host(host, problems)).collect();
        let headers = condition.header.as_ref().map(|fields| headers(fields, problems)).unwrap_or_default();
        let query = condition.query.as_ref().map_or(&[][..], |fields| &fields.value.0);
        let query = query.iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect();
        let client = texts(&condition.client);
        let client = if client.is_empty() { None } else { within(&client, keys, problems) };
        let not = condition.not.as_ref().map(|not| Box::new(Self::of(&not.value, patterns, keys, problems)));
        Self { paths, methods, hosts, headers, query, client, not }
    }

    pub(super) fn holds(&self, paths: &Paths, request: RequestView<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(request.method))
            && self.paths.as_ref().is_none_or(|numbers| paths.any(numbers, request.path()))
            && (self.hosts.is_empty() || host_of(request).is_some_and(|host| self.is_host(host)))
            && self
                .headers
                .iter()
                .all(|(name, value)| request.headers.get_all(name).iter().any(|found| found == value))
            && self.query.iter().all(|(name, value)| has_parameter(request, name, value))
            && self.client.as_ref().is_none_or(|within| within(request))
            && self.not.as_ref().is_none_or(|not| !not.holds(paths, request))
    }

    fn is_host(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }
}

/// A list of nothing would hold for no request, or for each.
fn refuse_empty(condition: &Condition, problems: &mut Problems<'_>) {
    let lists = [&condition.path, &condition.method, &condition.host, &condition.client];
    for list in lists.into_iter().flatten().filter(|list| list.all().iter().all(|text| text.value.is_empty()))
    {
        problems.error(list.place, "an empty list says nothing: leave the word out, or write what is meant");
    }
    for fields in [&condition.header, &condition.query].into_iter().flatten() {
        if fields.value.0.is_empty() {
            problems
                .error(fields.place, "no field is named here: leave the word out, or write what is meant");
        }
    }
}

fn host(host: &At<String>, problems: &mut Problems<'_>) -> Option<String> {
    let parsed: Option<http::uri::Authority> = host.value.parse().ok();
    if !host.value.contains('*') && parsed.is_some_and(|parsed| parsed.host() == host.value) {
        return Some(host.value.to_ascii_lowercase());
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

fn headers(fields: &At<Fields>, problems: &mut Problems<'_>) -> Vec<(HeaderName, HeaderValue)> {
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

type Within = Box<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;

fn within(networks: &[At<String>], keys: &Keys, problems: &mut Problems<'_>) -> Option<Within> {
    let mut wrong = false;
    for network in networks {
        if let Err(error) = Networks::new([&network.value]) {
            problems.error(network.place, error.problem());
            wrong = true;
        }
    }
    let all: Result<Networks, ConfigError> = Networks::new(networks.iter().map(|network| &network.value));
    let networks = all.ok().filter(|_| !wrong)?;
    Some(match keys.client() {
        Some(client) => Box::new(client.within(networks)),
        None => Box::new(PeerIp::new().within(networks)),
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

/// Whether the query has this parameter with this value, however they are encoded.
fn has_parameter(request: RequestView<'_>, name: &str, value: &str) -> bool {
    let query = request.uri.query().unwrap_or_default();
    query.split('&').any(|pair| {
        let (found, with) = pair.split_once('=').unwrap_or((pair, ""));
        form_decoded(found) == name && form_decoded(with) == value
    })
}
