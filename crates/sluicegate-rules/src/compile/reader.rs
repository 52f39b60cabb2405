//! One rule of a file: its condition, its key, and the policies, tiers or rooms that it names.
//!
//! A rule is read word by word, and every mistake is reported: a wrong word counts as absent. Only without a key or a cost there is no rule,
//! because nothing can be decided then.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::iter;
use std::sync::Arc;

use sluicegate_core::Policy;

use super::by::Classes;
use super::choice::Conditional;
use super::condition::Matcher;
use super::in_flight::{AtOnce, InFlightNumbers, Number};
use super::keys::{JOINED, KeyWords, Keys};
use super::own::{KeyedPolicy, Share, share};
use super::paths::Comparison;
use super::policies::Policies;
use super::rooms::{FileRoom, FileRoomTerms};
use super::rule::settle;
use super::rule::{Budget, Rule, RuleAsks, RuleCost, status, statuses, units};
use super::store::NamedStore;
use super::tiers::AllTiers;
use super::value::{option, refuse};
use crate::at::{At, Position};
use crate::error::Problems;
use crate::schema::{Condition, Cost, RuleEntry, written};
use crate::shown::{instead_of, short};

/// The sections of a file that rules name things of.
#[derive(Clone, Copy)]
pub(super) struct NamedSections<'a> {
    pub policies: &'a Policies,
    pub tiers: &'a AllTiers,
    pub keys: &'a Keys,
    pub store: Option<&'a NamedStore>,
    pub in_flight: &'a InFlightNumbers,
}

/// Reads one rule after the other, and keeps the data that can be checked only after all rules are read.
pub(super) struct RuleReader<'a> {
    sections: NamedSections<'a>,
    opened: Vec<Policy>,
    /// The index of each opened policy, by name.
    places: HashMap<String, usize>,
    rooms: Vec<FileRoom>,
    unverified: Vec<Position>,
    /// The fields of requests' bodies that the file uses.
    body_fields: RefCell<BTreeSet<String>>,
    /// Whether a rule for all requests uses the address of the client as its key.
    joins_client: bool,
}

/// Everything that the rules name, each once.
pub(super) struct NamedByRules {
    pub opened: Vec<Policy>,
    pub rooms: Vec<FileRoom>,
    pub body_fields: Vec<String>,
    /// Places of keys that clients choose freely; empty if a rule for all requests uses the address as its key.
    pub unverified: Vec<Position>,
}

/// The limits of a rule.
#[derive(Default)]
struct RuleLimits<'a> {
    names: Vec<At<String>>,
    budgets: Vec<Budget>,
    rooms: Vec<&'a FileRoomTerms>,
    /// Whether one of them is spent from: all but waiting rooms are.
    spends: bool,
}

/// The key of a rule, and its words.
struct RuleKey {
    /// `None` if a word is wrong, which is reported.
    key: Option<KeyWords>,
    words: Vec<At<String>>,
    /// The entries of a descriptor that are its key.
    entries: Option<Arc<[String]>>,
}

/// Words for keys that a client has only a few of.
const BY_ADDRESS: [&str; 3] = ["client", "peer", "everybody"];

impl<'a> RuleReader<'a> {
    /// Starts without rules; the names of policies, tiers, keys and numbers in flight are known.
    pub(super) fn new(sections: NamedSections<'a>) -> Self {
        Self {
            sections,
            opened: Vec::new(),
            places: HashMap::new(),
            rooms: Vec::new(),
            unverified: Vec::new(),
            body_fields: RefCell::default(),
            joins_client: false,
        }
    }

    /// Everything that was named, once every rule is read.
    pub(super) fn found(self) -> NamedByRules {
        let unverified = if self.joins_client { Vec::new() } else { self.unverified };
        let body_fields = self.body_fields.into_inner().into_iter().collect();
        NamedByRules { opened: self.opened, rooms: self.rooms, body_fields, unverified }
    }

    /// A denial or an exemption: a name and a condition, which asks no limit.
    pub(super) fn door(
        &self,
        name: &At<String>,
        only_if: &At<Condition>,
        comparison: Comparison,
        problems: &mut Problems<'_>,
    ) -> Conditional {
        let only_if = self.matcher(only_if, comparison, problems);
        Conditional { name: name.value.clone(), only_if, ..Conditional::default() }
    }

    /// Compiles a condition. An empty condition always holds, and is reported as a mistake.
    fn matcher(
        &self,
        condition: &At<Condition>,
        comparison: Comparison,
        problems: &mut Problems<'_>,
    ) -> Matcher {
        if condition.value.is_empty() {
            problems
                .error(condition.place, "this condition says nothing: leave it out, or write what is meant");
        }
        let fields = condition.value.body_fields().into_iter().map(|field| field.value.clone());
        self.body_fields.borrow_mut().extend(fields);
        let NamedSections { keys, tiers, .. } = self.sections;
        Matcher::of(&condition.value, (keys, tiers), comparison, problems)
    }

    /// A rule; `None` if its key or its cost cannot be understood. Policies and rooms that it names still count as used.
    pub(super) fn rule(
        &mut self,
        rule: &At<RuleEntry>,
        comparison: Comparison,
        problems: &mut Problems<'_>,
    ) -> Option<Rule> {
        let given = &rule.value;
        let only_if = given.only_if.as_ref().map(|condition| self.matcher(condition, comparison, problems));
        let entries =
            only_if.as_ref().and_then(|matcher| matcher.descriptor.as_ref()?.entries.as_ref()?.keys());
        let key = self.key(given, entries, problems);
        let limits = self.limits(given, key.key.as_ref(), problems);
        self.note_key(given, &limits, &key);
        let asks = self.asks(given, &limits, &key, problems);
        check_words(given, &limits, problems);
        let in_flight = given.in_flight.as_ref();
        let in_flight = in_flight.and_then(|name| self.sections.in_flight.used(name, problems));
        let class = self.classes(given, in_flight.as_ref(), problems);
        let RuleKey { key: Some(key), .. } = key else { return None };
        let asks = asks?;
        let rooms = limits.rooms.iter().map(|room| self.room(room, given, &asks, &key, problems)).collect();
        Some(Rule {
            name: given.name.value.clone(),
            place: given.name.place,
            group: given.group.as_ref().map(|group| group.value.clone()),
            only_if: only_if.unwrap_or_default(),
            budgets: limits.budgets,
            rooms,
            key,
            status: given.status.as_ref().and_then(|text| status(text, problems)),
            in_flight,
            class: class.map(Arc::new),
            asks: Arc::new(asks),
            replaces: given.replaces.as_ref().map(At::all).unwrap_or_default(),
            is_about_descriptors: is_about_descriptors(given),
        })
    }

    /// The policies, tiers and rooms that a rule names.
    fn limits(
        &mut self,
        given: &RuleEntry,
        key: Option<&KeyWords>,
        problems: &mut Problems<'_>,
    ) -> RuleLimits<'a> {
        let names = given.limit.as_ref().map(At::all).unwrap_or_default();
        if names.is_empty() && (given.limit.is_some() || given.in_flight.is_none()) {
            let place = given.limit.as_ref().map_or(given.name.place, |limit| limit.place);
            problems
                .error(place, "a rule has at least one limit: name a policy or tiers, or an \"in_flight\"");
        }
        let share = given.share.as_ref().and_then(|text| share(&given.name.value, text, problems));
        let mut limits = RuleLimits::default();
        for name in &names {
            if let Some(room) = self.sections.policies.room(&name.value) {
                limits.rooms.extend(room);
            } else {
                limits.spends = true;
                limits.budgets.extend(self.budget(name, share.as_ref(), key, problems));
            }
        }
        RuleLimits { names, ..limits }
    }

    /// The key of a rule. A request whose body cannot be read has none if the rule needs a field of the body.
    fn key(&self, given: &RuleEntry, entries: Option<Arc<[String]>>, problems: &mut Problems<'_>) -> RuleKey {
        let given_words = given.key.all();
        if given_words.is_empty() {
            problems.error(given.key.place, "a rule has a key, as client or everybody");
        }
        let key = self.sections.keys.key(&given_words, problems);
        let words: Vec<_> = given_words.iter().flat_map(|word| self.sections.keys.resolved(word)).collect();
        let mut fields: Vec<String> =
            words.iter().flat_map(|word| Keys::body_fields(&word.value)).map(str::to_owned).collect();
        if let Some(Cost::Entry(said)) = given.cost.as_ref().map(|cost| &cost.value) {
            fields.extend(said.json.iter().map(|field| field.value.clone()));
        }
        let condition = given.only_if.as_ref();
        let reads_body = !fields.is_empty()
            || condition.is_some_and(|condition| !condition.value.body_fields().is_empty());
        self.body_fields.borrow_mut().extend(fields);
        let key = key.map(|key| if reads_body { key.rejecting_unreadable() } else { key });
        let is_descriptor = |word: &At<String>| word.value.split(JOINED).any(|part| part == "descriptor");
        let entries = entries.filter(|_| words.iter().any(is_descriptor));
        let key = entries.as_ref().and_then(|entries| Some(key.as_ref()?.of_entries(entries))).or(key);
        RuleKey { key, words, entries }
    }

    /// Notes a key that clients choose freely, and whether a rule for all requests has another one.
    fn note_key(&mut self, given: &RuleEntry, limits: &RuleLimits<'_>, key: &RuleKey) {
        let is_by_address =
            |word: &str| BY_ADDRESS.contains(&word) || word.starts_with("client(") && !word.contains(JOINED);
        if limits.spends && key.words.iter().any(|word| Keys::is_unverified(&word.value)) {
            self.unverified.push(given.key.place);
        }
        self.joins_client |= limits.spends
            && given.only_if.is_none()
            && given.group.is_none()
            && key.words.iter().all(|word| is_by_address(&word.value));
    }

    /// The settings of a rule; `None` if its cost cannot be understood.
    fn asks(
        &self,
        given: &RuleEntry,
        limits: &RuleLimits<'_>,
        key: &RuleKey,
        problems: &mut Problems<'_>,
    ) -> Option<RuleAsks> {
        let cost = match &given.cost {
            None => Some(RuleCost::Fixed(1)),
            Some(cost) => units(cost, problems),
        };
        let refund_if = given.refund_if.as_ref().map(At::all).unwrap_or_default();
        let refund_if = refund_if.iter().filter_map(|word| statuses(word, problems)).collect();
        let settle = given.settle.as_ref().and_then(|entry| settle(entry, problems));
        let bandwidth = option(given.bandwidth.as_ref(), problems);
        let on_missing_key = option(given.on_missing_key.as_ref(), problems);
        Some(RuleAsks {
            limits: texts(&limits.names),
            keys: texts(&key.words)
                .into_iter()
                .chain(key.entries.iter().flat_map(|keys| keys.to_vec()))
                .collect(),
            shared_by: given.share.as_ref().map(|_| given.name.value.clone()),
            cost: cost?,
            refund_if,
            settle,
            bandwidth,
            on_missing_key,
            in_flight: given.in_flight.as_ref().map(|name| name.value.clone()),
            classes: given.class.as_ref().map(|words| texts(&words.all())).unwrap_or_default(),
        })
    }

    /// The importance of the requests of a rule.
    fn classes(
        &self,
        given: &RuleEntry,
        in_flight: Option<&Number>,
        problems: &mut Problems<'_>,
    ) -> Option<Classes> {
        let words = given.class.as_ref()?;
        let is_adaptive = in_flight.is_some_and(|number| matches!(number.at_once, AtOnce::Adaptive(_)));
        // An unknown name is already reported.
        if !is_adaptive && in_flight.is_some() == given.in_flight.is_some() {
            problems.error(words.place, "\"class\" is for rules whose \"in_flight\" is adaptive");
        }
        Some(Classes::of(words, self.sections.keys, problems))
    }

    /// The policy or the tiers of this name, or the rule's own share of them. Returns `None` if the name is unknown, which is reported.
    fn budget(
        &mut self,
        name: &At<String>,
        share: Option<&Share>,
        key: Option<&KeyWords>,
        problems: &mut Problems<'_>,
    ) -> Option<Budget> {
        let NamedSections { policies, tiers, .. } = self.sections;
        if policies.has(&name.value) {
            let policy = policies.used(&name.value)?;
            let policy = share.map_or_else(|| Ok(policy.clone()), |share| policy.share(share));
            let policy = policy.map_err(|error| problems.error(name.place, error.problem())).ok()?;
            let policy = policy.by(key);
            self.open(&policy, name.place, problems);
            return Some(Budget::Policy(Box::new(policy)));
        }
        let Some(tiers) = tiers.get(&name.value) else {
            self.refuse_unknown(name, problems);
            return None;
        };
        let tiers = tiers.as_ref()?;
        let tiers = share.map_or_else(|| Ok(tiers.clone()), |share| tiers.share(share));
        let tiers = tiers.map_err(|error| problems.error(name.place, error.problem())).ok()?.by(key);
        for policy in tiers.policies() {
            self.open(policy, name.place, problems);
        }
        Some(Budget::Tiers(Box::new(tiers)))
    }

    /// Reports a name of no policy and no tiers.
    fn refuse_unknown(&self, name: &At<String>, problems: &mut Problems<'_>) {
        let NamedSections { policies, tiers, in_flight, .. } = self.sections;
        let shown = short(&name.value);
        let text = if in_flight.has(&name.value) {
            format!(
                "{shown:?} is a number of requests at once: write in_flight: {shown} beside \"limit\", or in its place"
            )
        } else {
            let mut names: Vec<_> = policies.names().chain(tiers.keys().map(|name| &**name)).collect();
            names.sort_unstable();
            let instead = instead_of(&name.value, &names);
            format!("there is no policy and there are no tiers {shown:?}{instead}")
        };
        problems.error(name.place, text);
    }

    /// The index of a room. All rules that share it must describe it equally.
    fn room(
        &mut self,
        terms: &FileRoomTerms,
        given: &RuleEntry,
        asks: &RuleAsks,
        key: &KeyWords,
        problems: &mut Problems<'_>,
    ) -> usize {
        let room = FileRoom::of(terms, &given.name, &asks.keys, asks.on_missing_key, key);
        let known = self.rooms.iter().position(|known| known.terms.name == room.terms.name);
        let known = known.unwrap_or_else(|| {
            self.rooms.push(room.clone());
            self.rooms.len() - 1
        });
        let other = &self.rooms[known];
        if other.options != room.options {
            let text = format!(
                "rule {:?} counts the places of a client in this waiting room by another key: say the same, or leave \"places_per_client\" out",
                other.rule
            );
            problems.error(given.key.place, text);
        }
        known
    }

    /// Opens a policy once, however many rules name it. Two of one name must be equal, except that one may take quotas of keys.
    fn open(&mut self, keyed: &KeyedPolicy, place: Position, problems: &mut Problems<'_>) {
        let policy = keyed.policy.clone();
        match self.places.get(policy.name()).and_then(|place| self.opened.get_mut(*place)) {
            None => {
                let cannot = |policy: Policy| self.sections.store?.can_keep(&policy).err();
                let each = iter::once(policy.clone()).chain(keyed.of_keys_with_own());
                if let Some(error) = each.filter_map(cannot).next() {
                    let text = format!("{error}; a resolution is written algorithm: sliding-log-in-20");
                    problems.error(place, text);
                }
                self.places.insert(policy.name().to_owned(), self.opened.len());
                self.opened.push(policy);
            }
            Some(open) if open.taking_quotas() == policy.taking_quotas() => {
                if policy.takes_quotas() {
                    *open = policy;
                }
            }
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

/// Reports words that have no meaning beside other words of the rule.
fn check_words(given: &RuleEntry, limits: &RuleLimits<'_>, problems: &mut Problems<'_>) {
    let is_about_descriptors = is_about_descriptors(given);
    if is_about_descriptors {
        let said = given.cost.as_ref().filter(|cost| matches!(cost.value, Cost::Entry(_)));
        let [in_flight, refund_if, settle, bandwidth] = written!(given; in_flight refund_if settle bandwidth);
        let words = [in_flight, refund_if, settle, bandwidth, ("header", said.map(|cost| cost.place))];
        refuse(words, problems, |word| {
            format!(
                "{word:?} says nothing of descriptors, which have no header fields and no response: leave it out"
            )
        });
    } else {
        refuse(written!(given; replaces), problems, |_| {
            "\"replaces\" is about descriptors: write \"domain\" or \"descriptor\" under \"only_if\""
                .to_owned()
        });
    }
    if given.bandwidth.is_some() {
        refuse(written!(given; cost refund_if settle status), problems, |word| {
            format!(
                "{word:?} says nothing here: this rule has \"bandwidth\", so it counts bytes of bodies; for requests write a rule of its own"
            )
        });
    }
    if given.limit.is_none() {
        refuse(written!(given; share cost refund_if settle bandwidth), problems, |word| {
            format!("{word:?} says nothing here: this rule has no limit that is spent from")
        });
    }
    if !limits.spends && !limits.names.is_empty() {
        refuse(written!(given; share cost refund_if settle bandwidth status), problems, |word| {
            format!("{word:?} says nothing here: this rule has a waiting room, which spends nothing")
        });
    }
    if limits.budgets.iter().any(Budget::defers) {
        refuse(written!(given; refund_if settle bandwidth status), problems, |word| {
            format!(
                "{word:?} says nothing of requests that are kept for later: write a rule of its own, with a policy that does not defer"
            )
        });
        if is_about_descriptors {
            let text =
                "a descriptor is no request that could be kept for later: name a policy that does not defer";
            problems.error(given.limit.as_ref().map_or(given.name.place, |limit| limit.place), text);
        }
    }
}

/// Whether a rule is about descriptors, and about no request.
fn is_about_descriptors(given: &RuleEntry) -> bool {
    given.only_if.as_ref().is_some_and(|condition| condition.value.is_about_descriptors())
}

/// The values of a list, without their places.
fn texts(all: &[At<String>]) -> Vec<String> {
    all.iter().map(|text| text.value.clone()).collect()
}
