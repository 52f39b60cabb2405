//! The rules of a file, and the limits that they make.
//!
//! # Order of the doors
//! Denials are looked at first, then exemptions, then rules. A path with dots never opens a door: an exemption that holds in one
//! reading of the path only is none, and a denial that holds in one reading denies.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use http::StatusCode;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{ConfigError, Policy, RateLimiter, Store};
use sluicegate_tower::Limit;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::{Choose, Group, Limits};
use sluicegate_tower::respond::HeaderFields;

use super::Lookup;
use super::choice::{Choice, Conditional};
use super::condition::Matcher;
use super::in_flight::Numbers;
use super::keys::Keys;
use super::option;
use super::paths::has_dots;
use super::policies::Policies;
use super::rooms::FileRoom;
use super::rule::{Budget, Rule, Units, parts, status, statuses, units};
use super::store::NamedStore;
use super::tiers::AllTiers;
use crate::at::{At, Place};
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{Condition, File, OneOrMany, RuleEntry};

/// The contents of a file, understood: policies to be opened, and rules that are limits once they are.
pub(crate) struct Compiled {
    pub policies: Vec<Policy>,
    /// Other files that it was read from, and what they held.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    pub(super) headers: HeaderFields,
    /// Where it is counted, if the file says so.
    pub store: Option<NamedStore>,
    pub deny: Arc<Choice>,
    /// The status of each denial.
    statuses: Arc<[StatusCode]>,
    pub exempt: Arc<Choice>,
    /// Which of the rules apply to a request.
    pub choice: Arc<Choice>,
    pub(super) rules: Vec<Rule>,
    pub rooms: Vec<FileRoom>,
    /// Whether requests pass these rooms by, as in a tool.
    pub is_without_rooms: bool,
}

/// Reads the rules of a file, once its policies, tiers and keys are read.
///
/// All problems are told, not the first alone: what is wrong is left out, and the caller asks afterwards whether there were any. `None`
/// only if nothing can be said without what is wrong.
pub(super) fn of(
    file: &File,
    policies: &Policies,
    tiers: AllTiers,
    (keys, store, in_flight): (&Keys, Option<NamedStore>, &Numbers),
    problems: &mut Problems<'_>,
) -> Option<Compiled> {
    let mut reader = Reader {
        policies,
        tiers: &tiers,
        keys,
        in_flight,
        store: store.as_ref(),
        opened: Vec::new(),
        places: HashMap::new(),
        unverified: Vec::new(),
        joins_client: false,
        rooms: Vec::new(),
    };
    let deny = file.deny.iter().map(|entry| reader.door(&entry.value.name, &entry.value.only_if, problems));
    let deny = Arc::new(Choice::new(deny.collect()));
    let statuses = file.deny.iter().map(|entry| {
        let given = entry.value.status.as_ref().and_then(|text| status(text, problems));
        given.unwrap_or(StatusCode::FORBIDDEN)
    });
    let statuses = statuses.collect();
    let exempt =
        file.exempt.iter().map(|entry| reader.door(&entry.value.name, &entry.value.only_if, problems));
    let exempt = Arc::new(Choice::new(exempt.collect()));
    if file.rules.is_empty() {
        problems.error(None, "there are no rules, so nothing would be limited: add one under \"rules\"");
    }
    let denied = file.deny.iter().map(|entry| &entry.value.name);
    let doors = denied.chain(file.exempt.iter().map(|entry| &entry.value.name));
    unique(doors.chain(file.rules.iter().map(|rule| &rule.value.name)), problems);
    let mut rules: Vec<Rule> = file.rules.iter().filter_map(|rule| reader.rule(rule, problems)).collect();
    warn_of_meetings(&rules, problems);
    let Reader { opened, unverified, joins_client, rooms, .. } = reader;
    for place in unverified.into_iter().filter(|_| !joins_client) {
        problems.warning(
            place,
            "clients choose this key freely: add a rule with the key client for all requests",
        );
    }
    let headers = option(file.headers.as_ref(), problems).unwrap_or_default();
    // As the limits of the rules will want them: a policy is not to change again when they are put together.
    let giving_back = rules.iter().filter(|rule| !rule.refund_if.is_empty());
    let giving_back: HashSet<&str> = giving_back.flat_map(Rule::policies).collect();
    let opened = opened.into_iter().map(|policy| match giving_back.contains(policy.name()) {
        true => policy.with_refunds(),
        false => policy,
    });
    let (policies, files) = (opened.collect(), keys.files());
    let choice = Arc::new(Choice::new(rules.iter_mut().map(Rule::condition).collect()));
    let is_without_rooms = false;
    Some(Compiled {
        policies,
        files,
        store,
        headers,
        deny,
        statuses,
        exempt,
        choice,
        rules,
        rooms,
        is_without_rooms,
    })
}

/// Rules and doors are called by their names in logs and explanations.
fn unique<'a>(names: impl Iterator<Item = &'a At<String>>, problems: &mut Problems<'_>) {
    let mut known = HashSet::new();
    for name in names.filter(|name| !known.insert(&*name.value)) {
        problems.error(
            name.place,
            format!("rule {:?} is there twice: give each a name of its own", short(&name.value)),
        );
    }
}

/// Reads one rule after the other, and keeps what can be told only when all of them are read.
struct Reader<'a> {
    policies: &'a Policies,
    tiers: &'a AllTiers,
    keys: &'a Keys,
    in_flight: &'a Numbers,
    store: Option<&'a NamedStore>,
    opened: Vec<Policy>,
    /// Where each of them is, by its name.
    places: HashMap<String, usize>,
    /// Where a key stands that clients choose freely.
    unverified: Vec<Place>,
    /// Whether a rule for all requests goes by the address of the client.
    joins_client: bool,
    rooms: Vec<FileRoom>,
}

/// Keys of which a client has few.
const BY_ADDRESS: [&str; 3] = ["client", "peer", "everybody"];

impl Reader<'_> {
    fn door(&self, name: &At<String>, only_if: &At<Condition>, problems: &mut Problems<'_>) -> Conditional {
        let only_if = self.matcher(only_if, problems);
        Conditional {
            name: name.value.clone(),
            group: None,
            only_if,
            asks: String::new(),
            policies: Vec::new(),
        }
    }

    fn matcher(&self, condition: &At<Condition>, problems: &mut Problems<'_>) -> Matcher {
        if condition.value.is_empty() {
            problems
                .error(condition.place, "this condition says nothing: leave it out, or write what is meant");
        }
        Matcher::of(&condition.value, (self.keys, self.tiers), problems)
    }

    fn rule(&mut self, rule: &At<RuleEntry>, problems: &mut Problems<'_>) -> Option<Rule> {
        let given = &rule.value;
        let only_if = given.only_if.as_ref().map(|condition| self.matcher(condition, problems));
        let share = given.share.as_ref().and_then(|share| parts(share, problems));
        let limits = given.limit.all();
        let (mut budgets, mut named) = (Vec::new(), Vec::new());
        for name in &limits {
            match self.policies.room(&name.value) {
                Some(room) => named.extend(room),
                None => budgets.extend(self.budget(name, (&given.name.value, share), &given.key, problems)),
            }
        }
        let spends = limits.iter().any(|name| self.policies.room(&name.value).is_none());
        if limits.is_empty() {
            problems.error(given.limit.place, "a rule has at least one limit: name a policy or tiers");
        }
        let words = given.key.all();
        let key = self.keys.first_of(&words, problems);
        if words.is_empty() {
            problems.error(given.key.place, "a rule has a key, as client or everybody");
        }
        let resolved: Vec<_> = words.iter().flat_map(|word| self.keys.resolved(word)).collect();
        if spends && resolved.iter().any(|word| Keys::is_unverified(&word.value)) {
            self.unverified.push(given.key.place);
        }
        let by_address = resolved.iter().all(|word| BY_ADDRESS.contains(&&*word.value));
        self.joins_client |= spends && only_if.is_none() && given.group.is_none() && by_address;
        let cost = match &given.cost {
            None => Some(Units::Fixed(1)),
            Some(cost) => units(cost, problems),
        };
        let refund_if = given.refund_if.as_ref().map(At::all).unwrap_or_default();
        let refund_if: Vec<_> = refund_if.iter().filter_map(|word| statuses(word, problems)).collect();
        if !spends && !limits.is_empty() {
            let said = [
                given.share.as_ref().map(|word| ("share", word.place)),
                given.cost.as_ref().map(|word| ("cost", word.place)),
                given.refund_if.as_ref().map(|word| ("refund_if", word.place)),
            ];
            for (word, place) in said.into_iter().flatten() {
                let text =
                    format!("{word:?} says nothing here: this rule has a waiting room, which spends nothing");
                problems.error(place, text);
            }
        }
        let in_flight = given.in_flight.as_ref().and_then(|name| self.in_flight.used(name, problems));
        let on_missing_key = option(given.on_missing_key.as_ref(), problems);
        let asks = {
            let texts = |all: &[At<String>]| all.iter().map(|text| text.value.clone()).collect::<Vec<_>>();
            let in_flight = given.in_flight.as_ref().map(|name| &name.value);
            // A share is of the rule alone.
            let share = share.map(|_| &given.name.value);
            format!(
                "{:?}",
                (texts(&limits), texts(&words), share, &cost, &refund_if, on_missing_key, in_flight)
            )
        };
        let key = key?;
        let texts: Vec<String> = words.iter().map(|word| word.value.clone()).collect();
        let rooms = named.into_iter().map(|room| {
            let room = FileRoom::of(
                room,
                (&given.name.value, given.name.place),
                (&texts, Arc::clone(&key)),
                on_missing_key,
            );
            self.room(room, given.key.place, problems)
        });
        let rooms = rooms.collect();
        Some(Rule {
            asks,
            rooms,
            name: given.name.value.clone(),
            place: given.name.place,
            group: given.group.as_ref().map(|group| group.value.clone()),
            only_if: only_if.unwrap_or_default(),
            budgets,
            key,
            in_flight,
            on_missing_key,
            cost: cost?,
            refund_if,
        })
    }

    fn budget(
        &mut self,
        name: &At<String>,
        (rule, share): (&str, Option<(u64, u64)>),
        key: &At<OneOrMany>,
        problems: &mut Problems<'_>,
    ) -> Option<Budget> {
        if self.policies.has(&name.value) {
            let policy = self.policies.used(&name.value)?;
            let policy = match share {
                None => policy.clone(),
                Some((parts, whole)) => {
                    let shared = policy.share(format!("{}.{rule}", policy.name()), parts, whole);
                    shared.map_err(|error| problems.error(name.place, error.problem())).ok()?
                }
            };
            let shared = policy.name().to_owned();
            self.open(policy, name.place, problems);
            return Some(Budget::Policy(shared));
        }
        let Some(tiers) = self.tiers.get(&name.value) else {
            let tiers = self.tiers.keys().map(|name| &**name);
            let mut names: Vec<_> = self.policies.names().chain(tiers).collect();
            names.sort_unstable();
            let instead = instead_of(&name.value, &names);
            let text = format!("there is no policy and there are no tiers {:?}{instead}", short(&name.value));
            problems.error(name.place, text);
            return None;
        };
        let tiers = tiers.as_ref()?;
        let tiers = match share {
            None => Ok(tiers.clone()),
            Some((parts, whole)) => tiers.share(parts, whole, rule),
        };
        let tiers = tiers.map(|tiers| tiers.of_keys(|| self.keys.namer(&key.all())));
        let tiers = tiers.map_err(|error| problems.error(name.place, error.problem())).ok()?;
        for policy in tiers.policies() {
            self.open(policy.clone(), name.place, problems);
        }
        Some(Budget::Tiers(Box::new(tiers)))
    }

    /// The place of a room, of which rules that share it say the same.
    fn room(&mut self, room: FileRoom, key: Place, problems: &mut Problems<'_>) -> usize {
        let known = self.rooms.iter().position(|known| known.terms.name == room.terms.name);
        if let Some(other) =
            known.map(|place| &self.rooms[place]).filter(|other| other.options != room.options)
        {
            let text = format!(
                "rule {:?} counts the places of a client in this waiting room by another key: say the same, or leave \"places_per_client\" out",
                other.rule
            );
            problems.error(key, text);
        }
        known.unwrap_or_else(|| {
            self.rooms.push(room);
            self.rooms.len() - 1
        })
    }

    fn open(&mut self, policy: Policy, place: Place, problems: &mut Problems<'_>) {
        let known = self.places.get(policy.name()).and_then(|place| self.opened.get(*place));
        match known {
            None => {
                if let Some(Err(error)) = self.store.map(|store| store.can_keep(&policy)) {
                    let text = format!("{error}; a resolution is written algorithm: sliding-log-in-20");
                    problems.error(place, text);
                }
                self.places.insert(policy.name().to_owned(), self.opened.len());
                self.opened.push(policy);
            }
            Some(open) if *open == policy => {}
            Some(_) => {
                let text = format!(
                    "{:?} is the name of another policy: rename the rule, or that policy",
                    policy.name()
                );
                problems.error(place, text);
            }
        }
    }
}

/// A request that spends twice from one policy cannot be decided.
fn warn_of_meetings(rules: &[Rule], problems: &mut Problems<'_>) {
    let mut seen: HashMap<&str, &Rule> = HashMap::new();
    for rule in rules {
        for name in rule.policies() {
            let Some(first) = seen.insert(name, rule) else { continue };
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

impl Compiled {
    /// The limits, now that all policies are open on this store.
    pub(crate) fn limits(&self, store: &Arc<dyn Store>, open: &[RateLimiter]) -> Result<Limits, ConfigError> {
        let limiters = by_name(open);
        let mut all = Group::select(Arc::clone(&self.choice));
        for rule in &self.rules {
            all = all.and(group_of(rule, store, &limiters)?);
        }
        let mut builder = Limits::builder(all).headers(self.headers);
        if !self.deny.is_empty() || self.choice.may_be_torn() {
            let (deny, statuses) = (Arc::clone(&self.deny), Arc::clone(&self.statuses));
            let torn = self.torn(open);
            builder = builder.deny_with(move |request| {
                let denied = if deny.is_empty() { None } else { deny.first(request) };
                match denied {
                    Some(denied) => statuses.get(denied).copied(),
                    None => torn(request).then_some(StatusCode::BAD_REQUEST),
                }
            });
        }
        if !self.exempt.is_empty() {
            let (exempt, deny) = (Arc::clone(&self.exempt), Arc::clone(&self.deny));
            builder = builder.exempt(move |request| is_exempt(&exempt, &deny, request));
        }
        builder.build()
    }

    /// Says whether a path with dots would spend from one policy in two ways. A policy that is not enforced, by the file or by an
    /// operator, refuses nobody.
    pub(crate) fn torn(&self, open: &[RateLimiter]) -> Torn {
        let choice = Arc::clone(&self.choice);
        let limiters: Lookup<String, RateLimiter> =
            open.iter().map(|limiter| (limiter.policy().name().to_owned(), limiter.clone())).collect();
        let is_enforced = move |policy: &str| {
            let limiter = limiters.get(policy);
            limiter.is_some_and(|limiter| limiter.with_policy(Policy::mode) == PolicyMode::Enforce)
        };
        Arc::new(move |request| choice.is_torn(request, &is_enforced))
    }

    /// Says of each rule alone what shows only when its limits are put together.
    pub(crate) fn check(&self, store: &Arc<dyn Store>, open: &[RateLimiter], problems: &mut Problems<'_>) {
        let limiters = by_name(open);
        for rule in &self.rules {
            if let Err(error) = group_of(rule, store, &limiters) {
                problems.error(rule.place, error.problem());
            }
            let too_much = rule.policies().filter_map(|name| rule.is_too_much(&limiters.get(name)?.policy()));
            too_much.for_each(|text| problems.warning(rule.place, text));
        }
    }

    /// How many limits each rule has, in order.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.rules.iter().map(|rule| rule.budgets.len())
    }
}

/// Whether a request passes the rules by. Where a path with dots leads is known to whoever resolves them, so it is never exempt.
/// A denial holds wherever the other rules stand.
pub(super) fn is_exempt(exempt: &Choice, deny: &Choice, request: RequestView<'_>) -> bool {
    exempt.first(request).is_some() && !has_dots(request.path()) && deny.first(request).is_none()
}

/// Whether a path with dots is torn between its two readings.
pub(crate) type Torn = Arc<dyn Fn(RequestView<'_>) -> bool + Send + Sync>;

type ByName<'a> = HashMap<String, &'a RateLimiter>;

fn by_name(open: &[RateLimiter]) -> ByName<'_> {
    open.iter().map(|limiter| (limiter.policy().name().to_owned(), limiter)).collect()
}

/// The limits of one rule, which apply together.
fn group_of(rule: &Rule, store: &Arc<dyn Store>, open: &ByName<'_>) -> Result<Group, ConfigError> {
    let limiter = |name: &str| open.get(name).copied().cloned();
    let mut group = Group::new(Choose::All);
    for budget in &rule.budgets {
        let limit = match budget {
            Budget::Policy(name) => match limiter(name) {
                Some(limiter) => Limit::new(limiter),
                None => continue,
            },
            Budget::Tiers(tiers) => tiers.limit(store, limiter)?,
        };
        group = group.and(rule.finish(limit)?);
    }
    Ok(group)
}
