//! All rules and doors of a file, read one after the other.
//!
//! # Order of the doors
//! Denials are checked first, then exemptions, then rules. In doubt a request is limited: a denial applies if it holds in one reading of
//! the path; an exemption applies only if it holds in all of them, and never to a path with dots.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use http::StatusCode;
use sluicegate_tower::limits::PathReading;
use sluicegate_tower::limits::path::Purpose;
use sluicegate_tower::request_fields::RequestFieldsLayer;

use super::choice::{Choice, Conditional};
use super::compiled::{Compiled, Refusals, Sections};
use super::own::{KeyedPolicy, WithKeys};
use super::paths::Comparison;
use super::reader::{NamedByRules, NamedSections, RuleReader};
use super::rule::{Rule, status};
use super::value::{is_unknown, option};
use crate::at::At;
use crate::error::Problems;
use crate::schema::{File, OneOrMany, PathsEntry};
use crate::shown::{instead_of, short};

/// Reads the rules of a file, once its policies, tiers and keys are read.
///
/// All problems are reported, not only the first: wrong parts are left out, and the caller asks afterwards whether there were any. Returns
/// `None` only if a wrong part makes all checks impossible.
pub(super) fn of(file: &File, named: NamedSections<'_>, problems: &mut Problems<'_>) -> Option<Compiled> {
    let mut reader = RuleReader::new(named);
    let reading = file.paths.as_ref().map(|paths| reading(&paths.value, problems)).unwrap_or_default();
    let [denying, exempting, limiting] =
        [Purpose::Deny, Purpose::Exempt, Purpose::Limit].map(|purpose| Comparison::new(purpose, reading));
    let deny =
        file.deny.iter().map(|entry| reader.door(&entry.value.name, &entry.value.only_if, denying, problems));
    let deny = Choice::new(deny.collect(), denying, problems.hidden());
    let statuses = file.deny.iter().map(|entry| {
        let given = entry.value.status.as_ref().and_then(|text| status(text, problems));
        given.unwrap_or(StatusCode::FORBIDDEN)
    });
    let statuses = statuses.collect();
    let exempt = file
        .exempt
        .iter()
        .map(|entry| reader.door(&entry.value.name, &entry.value.only_if, exempting, problems));
    let exempt = Choice::new(exempt.collect(), exempting, problems.hidden());
    if file.rules().is_empty() && !file.is_by_name() {
        let text = "there are no rules, so nothing would be limited: add one under \"rules\", or write rules: [] if all policies are checked by name";
        problems.error(None, text);
    }
    let denied = file.deny.iter().map(|entry| &entry.value.name);
    let doors = denied.chain(file.exempt.iter().map(|entry| &entry.value.name));
    unique(doors.chain(file.rules().iter().map(|rule| &rule.value.name)), problems);
    let mut rules: Vec<Rule> =
        file.rules().iter().filter_map(|rule| reader.rule(rule, limiting, problems)).collect();
    warn_of_meetings(&rules, problems);
    warn_of_hidden(&rules, problems);
    check_units(&rules, problems);
    let NamedByRules { opened, rooms, body_fields, unverified } = reader.found();
    for place in unverified {
        problems.warning(
            place,
            "clients choose this key freely: add a rule with the key client for all requests, or, if something in front verifies it, write verified_before(..) around it",
        );
    }
    let headers = option(file.headers.as_ref(), problems).unwrap_or_default();
    let on_unreadable = option(file.on_unreadable_body.as_ref(), problems).unwrap_or_default();
    // A wrong field is reported where it stands.
    let fields = RequestFieldsLayer::new(&body_fields).or_else(|_| RequestFieldsLayer::new([""; 0])).ok()?;
    let mut fields = fields.on_unreadable(on_unreadable);
    let mut reads = Vec::new();
    if !body_fields.is_empty() {
        let names: Vec<String> = body_fields.iter().map(|field| format!("{field:?}")).collect();
        reads.push(format!("the fields {} of requests' bodies", names.join(", ")));
    }
    if rules.iter().any(Rule::counts_bytes) {
        fields = fields.count_bytes();
        reads.push("the lengths of requests' bodies".to_owned());
    }
    // Policies are prepared for the limits of the rules, so that no policy changes again when these are made.
    let giving_back = rules.iter().filter(|rule| rule.changes_later());
    let giving_back: HashSet<&str> = giving_back.flat_map(Rule::names).collect();
    let opened = opened.into_iter().map(|policy| match giving_back.contains(policy.name()) {
        true => policy.with_refunds(),
        false => policy,
    });
    let (opened, files) = (opened.collect(), named.keys.files());
    let replaces: Vec<Vec<usize>> = rules.iter().map(|rule| replaced(rule, &rules, problems)).collect();
    let conditions = rules.iter_mut().zip(replaces).map(|(rule, replaces)| Conditional {
        name: rule.name.clone(),
        group: rule.group.clone(),
        only_if: mem::take(&mut rule.only_if),
        asks: Some(Arc::clone(&rule.asks)),
        policies: rule.names().map(str::to_owned).collect(),
        replaces,
    });
    let choice = Choice::new(conditions.collect(), limiting, problems.hidden());
    let unused: Vec<&KeyedPolicy> =
        file.policies.0.iter().filter_map(|(name, _)| named.policies.unused(&name.value)).collect();
    let all: Vec<&KeyedPolicy> =
        rules.iter().flat_map(Rule::policies).chain(unused.iter().copied()).collect();
    let inherit = all.iter().map(|keyed| (keyed.policy.name().to_owned(), keyed.inherit)).collect();
    let of_policies = all.iter().filter_map(|keyed| Some((keyed.policy.name().to_owned(), keyed.status?)));
    let of_rules = rules.iter().filter_map(|rule| Some((rule.name.clone(), rule.status?)));
    let refusals = Refusals { of_rules: of_rules.collect(), of_policies: of_policies.collect() };
    let with_keys = Arc::new(WithKeys::among(all.into_iter()));
    let unused = unused.into_iter().map(|keyed| keyed.policy.clone()).collect();
    Some(Compiled {
        given_names: named.keys.given.clone(),
        policies: opened,
        unused,
        inherit,
        with_keys,
        single_keys: single_keys(file),
        files,
        headers,
        store: named.store.cloned(),
        sections: Sections::new(deny, exempt, choice),
        statuses,
        refusals: Arc::new(refusals),
        rules: rules.into(),
        rooms,
        fields,
        reads,
        is_without_rooms: false,
    })
}

/// All keys and tiers with quotas of their own that the file names, as `api.acme` or `plan.pro` and `10000/min`.
fn single_keys(file: &File) -> Vec<(String, String)> {
    let of_policies = file.policies.0.iter().map(|(name, policy)| (name, &policy.value.overrides));
    let with_quotas = file.tiers.0.iter().filter(|(_, tiers)| tiers.value.policy.is_some());
    let of_tiers = with_quotas.map(|(name, tiers)| (name, &tiers.value.tiers));
    let each = of_policies.chain(of_tiers).flat_map(|(name, overrides)| {
        let text = |quotas: &At<OneOrMany>| {
            let all: Vec<String> = quotas.all().into_iter().map(|quota| quota.value).collect();
            all.join(", ")
        };
        overrides
            .0
            .iter()
            .map(move |(key, quotas)| (format!("{}.{}", name.value, short(&key.value)), text(quotas)))
    });
    each.collect()
}

/// The way in which the service behind reads paths.
fn reading(paths: &PathsEntry, problems: &mut Problems<'_>) -> PathReading {
    let mut ignores = |word: &Option<At<String>>| match word.as_ref().map(|word| (&*word.value, word)) {
        None => None,
        Some(("ignore", _)) => Some(true),
        Some(("keep", _)) => Some(false),
        Some((other, word)) => {
            if !is_unknown(word, "its default", problems) {
                problems.error(
                    word.place,
                    format!("{:?} is neither ignore nor keep: write one of them", short(other)),
                );
            }
            None
        }
    };
    let reading = match ignores(&paths.case) {
        None => PathReading::new(),
        Some(true) => PathReading::new().ignore_case(),
        Some(false) => PathReading::new().keep_case(),
    };
    match ignores(&paths.trailing_slash) {
        None => reading,
        Some(true) => reading.ignore_trailing_slash(),
        Some(false) => reading.keep_trailing_slash(),
    }
}

/// Reports names that occur twice: logs and explanations identify rules and doors by name.
fn unique<'a>(names: impl Iterator<Item = &'a At<String>>, problems: &mut Problems<'_>) {
    let mut known = HashSet::new();
    for name in names.filter(|name| !known.insert(&*name.value)) {
        problems.error(
            name.place,
            format!("rule {:?} is there twice: give each a name of its own", short(&name.value)),
        );
    }
}

/// The indices of the rules that a rule replaces.
fn replaced(rule: &Rule, rules: &[Rule], problems: &mut Problems<'_>) -> Vec<usize> {
    let place = |name: &At<String>| {
        let found = rules.iter().position(|known| known.name == name.value && known.name != rule.name);
        if found.is_none() {
            let names: Vec<&str> = rules.iter().map(|rule| &*rule.name).collect();
            let instead = instead_of(&name.value, &names);
            problems.error(name.place, format!("there is no other rule {:?}{instead}", short(&name.value)));
        }
        found
    };
    rule.replaces.iter().filter_map(place).collect()
}

/// Warns of two rules that may both spend from one policy: a request that meets both cannot be decided.
fn warn_of_meetings(rules: &[Rule], problems: &mut Problems<'_>) {
    let mut seen: HashMap<&str, &Rule> = HashMap::new();
    for rule in rules {
        for name in rule.names() {
            // Of two bandwidth limits with one policy, a body uses the first.
            let meets = |first: &&Rule| !are_apart(first, rule) && rule.asks.bandwidth.is_none();
            let Some(first) = seen.insert(name, rule).filter(meets) else {
                continue;
            };
            if rule.group.is_none() || rule.group != first.group {
                let text = format!(
                    "policy {name:?} is rule {:?}'s, too: a request that matches both gets 500; put both into one group, or say share: 1/1",
                    first.name
                );
                problems.warning(rule.place, text);
            }
        }
    }
}

/// Warns of rules that never apply, because a rule before them in their group applies to each of their requests.
fn warn_of_hidden(rules: &[Rule], problems: &mut Problems<'_>) {
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.group.is_some()) {
        let hides = |first: &&Rule| first.group == rule.group && first.only_if.covers(&rule.only_if);
        // A bound for large files.
        if let Some(first) = rules[..index].iter().take(1_000).find(hides) {
            let text = format!(
                "rule {:?} is before it in its group and matches all of its requests, so it never applies: put it before that one, or in no group",
                first.name
            );
            problems.warning(rule.place, text);
        }
    }
}

/// Reports policies that count units of requests in one rule and bytes of bodies in another.
fn check_units(rules: &[Rule], problems: &mut Problems<'_>) {
    let mut seen: HashMap<&str, &Rule> = HashMap::new();
    for rule in rules {
        for name in rule.names() {
            let first = *seen.entry(name).or_insert(rule);
            if first.asks.bandwidth.is_some() != rule.asks.bandwidth.is_some() {
                let text = format!(
                    "policy {name:?} is rule {:?}'s, too, and one of them counts requests and the other bytes: give each a policy of its own",
                    first.name
                );
                problems.error(rule.place, text);
            }
        }
    }
}

/// Whether one rule is about requests and the other about descriptors, or both are about descriptors with different entries.
fn are_apart(one: &Rule, other: &Rule) -> bool {
    match (&one.only_if.descriptor, &other.only_if.descriptor) {
        (Some(one), Some(other)) => one.is_apart_from(other),
        (one, other) => one.is_some() != other.is_some(),
    }
}
