//! One rule of a file: its condition, its keys, and the policies, tiers or rooms that it names.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::iter;
use std::sync::Arc;

use sluicegate_core::Policy;
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::request_fields::RejectUnreadable;

use super::choice::Conditional;
use super::class::Classes;
use super::condition::{Comparison, Matcher};
use super::in_flight::{AtOnce, InFlightNumbers};
use super::keys::{JOINED, Keys};
use super::own::KeyedPolicy;
use super::policies::Policies;
use super::rooms::FileRoom;
use super::rule::{Budget, Rule, RuleCost, parts, statuses, units};
use super::settle::settle;
use super::store::NamedStore;
use super::tiers::AllTiers;
use super::{option, refuse};
use crate::at::{At, Position};
use crate::error::Problems;
use crate::read::{instead_of, short};
use crate::schema::{Condition, Cost, OneOrMany, RuleEntry, written};

/// Reads one rule after the other, and keeps the data that can be checked only after all rules are read.
pub(super) struct RuleReader<'a> {
    policies: &'a Policies,
    tiers: &'a AllTiers,
    keys: &'a Keys,
    store: Option<&'a NamedStore>,
    in_flight: &'a InFlightNumbers,
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

/// Words for keys that a client has only a few of.
const BY_ADDRESS: [&str; 3] = ["client", "peer", "everybody"];

impl<'a> RuleReader<'a> {
    /// Starts without rules; the names of policies, tiers, keys and numbers in flight are known.
    pub(super) fn new(
        policies: &'a Policies,
        tiers: &'a AllTiers,
        (keys, store, in_flight): (&'a Keys, Option<&'a NamedStore>, &'a InFlightNumbers),
    ) -> Self {
        Self {
            policies,
            tiers,
            keys,
            store,
            in_flight,
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
        Matcher::of(&condition.value, (self.keys, self.tiers), comparison, problems)
    }

    /// A rule, with all of its mistakes reported. Returns `None` if its key or its cost cannot be understood, because nothing can be
    /// decided without them; policies and rooms that it names still count as used.
    pub(super) fn rule(
        &mut self,
        rule: &At<RuleEntry>,
        comparison: Comparison,
        problems: &mut Problems<'_>,
    ) -> Option<Rule> {
        let given = &rule.value;
        let condition = given.only_if.as_ref().map(|condition| &condition.value);
        let only_if = given.only_if.as_ref().map(|condition| self.matcher(condition, comparison, problems));
        let share = given.share.as_ref().and_then(|share| parts(share, problems));
        let limits = given.limit.as_ref().map(At::all).unwrap_or_default();
        let (mut budgets, mut named) = (Vec::new(), Vec::new());
        for name in &limits {
            match self.policies.room(&name.value) {
                Some(room) => named.extend(room),
                None => budgets.extend(self.budget(name, (&given.name.value, share), &given.key, problems)),
            }
        }
        let spends = limits.iter().any(|name| self.policies.room(&name.value).is_none());
        if limits.is_empty() && (given.limit.is_some() || given.in_flight.is_none()) {
            let place = given.limit.as_ref().map_or(given.name.place, |limit| limit.place);
            problems
                .error(place, "a rule has at least one limit: name a policy or tiers, or an \"in_flight\"");
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
        let mut of_body: Vec<_> = condition
            .iter()
            .flat_map(|condition| condition.body_fields())
            .map(|field| &*field.value)
            .collect();
        of_body.extend(resolved.iter().flat_map(|word| Keys::body_fields(&word.value)));
        let by_address =
            |word: &str| BY_ADDRESS.contains(&word) || word.starts_with("client(") && !word.contains(JOINED);
        let by_address = resolved.iter().all(|word| by_address(&word.value));
        self.joins_client |= spends && only_if.is_none() && given.group.is_none() && by_address;
        let cost = match &given.cost {
            None => Some(RuleCost::Fixed(1)),
            Some(cost) => units(cost, problems),
        };
        if let Some(Cost::Entry(said)) = given.cost.as_ref().map(|cost| &cost.value) {
            of_body.extend(said.json.iter().map(|field| &*field.value));
        }
        let key = key.map(|key| if of_body.is_empty() { key } else { Arc::new(RejectUnreadable.or(key)) });
        self.body_fields.get_mut().extend(of_body.into_iter().map(str::to_owned));
        let refund_if = given.refund_if.as_ref().map(At::all).unwrap_or_default();
        let refund_if: Vec<_> = refund_if.iter().filter_map(|word| statuses(word, problems)).collect();
        let settle = given.settle.as_ref().map(|entry| settle(entry, problems));
        let bandwidth = option(given.bandwidth.as_ref(), problems);
        check_words(given, (spends || limits.is_empty(), &budgets), problems);
        let in_flight = given.in_flight.as_ref().and_then(|name| self.in_flight.used(name, problems));
        let class = given.class.as_ref().map(|words| Classes::of(words, self.keys, problems));
        if let Some(said) = given.class.as_ref()
            && !in_flight.as_ref().is_some_and(|number| matches!(number.at_once, AtOnce::Adaptive(_)))
            && in_flight.is_some() == given.in_flight.is_some()
        {
            let text = "\"class\" is for rules whose \"in_flight\" is adaptive".to_owned();
            problems.error(said.place, text);
        }
        let on_missing_key = option(given.on_missing_key.as_ref(), problems);
        let asks = {
            // A share belongs to its rule alone.
            let share = share.map(|_| &given.name.value);
            let in_flight = given.in_flight.as_ref().map(|name| &name.value);
            let class = given.class.as_ref().map(|words| texts(&words.all()));
            format!(
                "{:?}",
                (
                    (texts(&limits), texts(&words), share, &cost),
                    (&refund_if, &settle, bandwidth, on_missing_key, in_flight, class),
                )
            )
        };
        let key = key?;
        let rooms = named.into_iter().map(|room| {
            let room = FileRoom::of(
                room,
                (&given.name.value, given.name.place),
                (&texts(&words), Arc::clone(&key)),
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
            class: class.map(Arc::new),
            on_missing_key,
            cost: cost?,
            refund_if,
            bandwidth,
            settle: settle.flatten(),
            replaces: given.replaces.as_ref().map(At::all).unwrap_or_default(),
            is_about_descriptors: condition.is_some_and(Condition::is_about_descriptors),
        })
    }

    /// The policy or the tiers of this name, or the rule's own share of them. Returns `None` if the name is unknown, which is reported.
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
                None => Ok(policy.clone()),
                Some((parts, whole)) => policy.share(rule, parts, whole),
            };
            let policy = policy.map_err(|error| problems.error(name.place, error.problem())).ok()?;
            let policy = policy.named_by(|| self.keys.namer(&key.all()));
            self.open(&policy, name.place, problems);
            return Some(Budget::Policy(Box::new(policy)));
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
            Some((parts, whole)) => tiers.share(rule, parts, whole),
        };
        let tiers = tiers.and_then(|tiers| tiers.named_by(|| self.keys.namer(&key.all())));
        let tiers = tiers.map_err(|error| problems.error(name.place, error.problem())).ok()?;
        for policy in tiers.policies() {
            self.open(policy, name.place, problems);
        }
        Some(Budget::Tiers(Box::new(tiers)))
    }

    /// The index of a room. All rules that share it must describe it equally.
    fn room(&mut self, room: FileRoom, key: Position, problems: &mut Problems<'_>) -> usize {
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

    /// Opens a policy once, however many rules name it. Two of one name must be equal, except that one may take quotas of keys.
    fn open(&mut self, keyed: &KeyedPolicy, place: Position, problems: &mut Problems<'_>) {
        let policy = keyed.policy.clone();
        match self.places.get(policy.name()).and_then(|place| self.opened.get_mut(*place)) {
            None => {
                let cannot = |policy: Policy| self.store?.can_keep(&policy).err();
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
fn check_words(given: &RuleEntry, (spends, budgets): (bool, &[Budget]), problems: &mut Problems<'_>) {
    let condition = given.only_if.as_ref().map(|condition| &condition.value);
    let is_about_descriptors = condition.is_some_and(Condition::is_about_descriptors);
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
        refuse(written!(given; cost refund_if settle), problems, |word| {
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
    if !spends {
        refuse(written!(given; share cost refund_if settle bandwidth), problems, |word| {
            format!("{word:?} says nothing here: this rule has a waiting room, which spends nothing")
        });
    }
    if budgets.iter().any(Budget::defers) {
        refuse(written!(given; refund_if settle bandwidth), problems, |word| {
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

/// The values of a list, without their places.
fn texts(all: &[At<String>]) -> Vec<String> {
    all.iter().map(|text| text.value.clone()).collect()
}
