//! Reads the conditions of a file.

use std::sync::Arc;

use http::{HeaderName, Method};
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_tower::limits::path::{Fold, Purpose, Sense};
use sluicegate_tower::request_fields::FieldKey;

use super::{Client, DescriptorPattern, InTiers, Matcher, any};
use crate::at::At;
use crate::compile::keys::{Keys, networks_of};
use crate::compile::paths::Comparison;
use crate::compile::pattern::{FieldPattern, PathWanted, TextPattern, WholeRegex};
use crate::compile::tiers::AllTiers;
use crate::compile::value::refuse;
use crate::error::Problems;
use crate::schema::{Condition, FieldValues, OneOrMany, TextWanted, written};
use crate::shown::{instead_of, short};

impl Matcher {
    pub(in crate::compile) fn of(
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
        let texts = |list: &Option<At<OneOrMany>>| list.as_ref().map(At::all).unwrap_or_default();
        let paths = condition.path.as_ref().map(At::each);
        let paths = paths.map(|paths| {
            let fold = comparison.fold(sense);
            paths.iter().filter_map(|path| PathWanted::of(path, fold, problems)).collect()
        });
        let methods = texts(&condition.method);
        let methods = methods.iter().filter_map(|method| self::method(method, problems)).collect();
        let hosts = condition.host.as_ref().map(At::each).unwrap_or_default();
        let hosts = hosts.iter().filter_map(|host| self::host(host, problems)).collect();
        let headers = patterns(&condition.header, header_name, problems);
        let query = patterns(&condition.query, |name| Ok(name.to_owned()), problems);
        let body =
            patterns(&condition.body, |field| FieldKey::new(field).map(|_| field.to_owned()), problems);
        // An exemption must hold for sure, and so must everything within a `not` of other sections.
        let takes_unreadable = (comparison.purpose == Purpose::Exempt) == (sense == Sense::NotIn);
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
        let descriptor = DescriptorPattern::of(condition, comparison, sense, problems);
        Self {
            descriptor,
            paths,
            sense,
            methods,
            hosts,
            headers,
            query,
            body,
            takes_unreadable,
            client,
            tiers: in_tiers,
            not,
        }
    }
}

/// Refuses empty lists: such a condition would hold for no request, or for every one.
fn refuse_empty(condition: &Condition, problems: &mut Problems<'_>) {
    let texts = [&condition.path, &condition.host].into_iter().flatten();
    let is_empty = |text: &At<TextWanted>| matches!(&text.value, TextWanted::Text(text) if text.is_empty());
    let texts = texts.filter(|texts| texts.each().iter().all(is_empty)).map(|texts| texts.place);
    let lists = [&condition.method, &condition.client, &condition.domain];
    let tiers = condition.tier.iter().flat_map(|tiers| tiers.value.0.iter().map(|(_, list)| list));
    let lists = lists.into_iter().flatten().chain(tiers);
    let lists = lists.filter(|list| list.all().iter().all(|text| text.value.is_empty()));
    for place in texts.chain(lists.map(|list| list.place)) {
        problems.error(place, "an empty list says nothing: leave the word out, or write what is meant");
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

/// Refuses a condition about both a descriptor and a request: a descriptor has no path, and a request no domain.
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

fn host(given: &At<TextWanted>, problems: &mut Problems<'_>) -> Option<TextPattern> {
    let ignoring_case = Fold { case: true, ..Fold::default() };
    let host = match &given.value {
        TextWanted::Text(host) => host,
        TextWanted::Regex(text) => {
            return WholeRegex::of(text, given, ignoring_case, problems).map(TextPattern::Regex);
        }
        TextWanted::Presence(_) | TextWanted::Several(_) => "",
    };
    let bare = host.strip_prefix("*.").unwrap_or(host);
    let parsed: Option<http::uri::Authority> = bare.parse().ok();
    if !bare.contains('*') && parsed.is_some_and(|parsed| parsed.host() == bare) {
        // As in a request, a trailing dot marks a complete name.
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        return Some(TextPattern::of_parts(&host));
    }
    let shown = short(host);
    problems.error(
        given.place,
        format!("{shown:?} is not a host: write it alone, as api.example.org or *.example.org, without scheme and port"),
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

/// Fields, each with its pattern.
fn patterns<N>(
    given: &Option<At<FieldValues>>,
    name_of: impl Fn(&str) -> Result<N, ConfigError>,
    problems: &mut Problems<'_>,
) -> Vec<(N, FieldPattern)> {
    let fields = given.as_ref().map_or(&[][..], |fields| &fields.value.0);
    let read = fields.iter().filter_map(|(name, wanted)| {
        let wanted = FieldPattern::of(wanted, Fold::default(), problems);
        let read = name_of(&name.value).map_err(|error| problems.error(name.place, error.problem())).ok();
        read.map(|name| (name, wanted))
    });
    read.collect()
}

fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    let problem = || format!("{:?} is not the name of a header field", short(name));
    name.parse().map_err(|_| ConfigError::new(ConfigErrorKind::Layer, problem()))
}

fn within(networks: &[At<String>], keys: &Keys, problems: &mut Problems<'_>) -> Option<Client> {
    let within = networks_of(networks, problems)?;
    if let Some(everything) = within.everything() {
        let kind = if everything.contains(':') { "IPv6" } else { "IPv4" };
        let text =
            format!("every {kind} address is in {everything}: leave this out if all clients are meant");
        problems.warning(networks.first()?.place, text);
    }
    let shown = any(&networks.iter().map(|network| &network.value).collect::<Vec<_>>());
    let client = keys.client()?;
    Some(Client { is_within: client.within(within), key: client.clone().extractor(), shown })
}
