//! A compiled file, and the limits that it makes once its policies are open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use http::{StatusCode, header};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{ConfigError, Policy, RateLimiter, Store};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::in_flight::{InFlightLimit, InFlightLimits};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::has_dots;
use sluicegate_tower::limits::{Choose, Group, Limits, Selected};
use sluicegate_tower::request_fields::RequestFieldsLayer;
use sluicegate_tower::respond::HeaderFields;
use sluicegate_tower::room::Door;
use smallvec::SmallVec;

use super::choice::Choice;
use super::in_flight::Number;
use super::keys::GivenKeys;
use super::own::WithKeys;
use super::paths::FastMap;
use super::rooms::FileRoom;
use super::rule::{Budget, Rule};
use super::store::NamedStore;
use crate::error::Problems;
use crate::rooms::Doors;

/// The compiled contents of a file: policies to open, and rules that become limits once these are open.
pub(crate) struct Compiled {
    pub policies: Vec<Policy>,
    /// Policies that no rule and no tier uses.
    pub unused: Vec<Policy>,
    /// How the keys of both start where a reload changes their quotas, by the name of the policy.
    pub inherit: HashMap<String, Inherit>,
    /// The `overrides` of both.
    pub with_keys: Arc<WithKeys>,
    /// The quotas of single keys and of tiers, each by the name of its policy or tiers and its own.
    pub single_keys: Vec<(String, String)>,
    /// The names of keys that the program finds itself.
    pub given_names: Vec<String>,
    /// Other files that it was read from, and their contents.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    pub(super) headers: HeaderFields,
    /// The store that the file names, if it names one.
    pub store: Option<NamedStore>,
    /// Its sections, before the policies are open.
    pub sections: Sections,
    /// The status of each denial.
    pub(super) statuses: Arc<[StatusCode]>,
    pub(super) refusals: Arc<Refusals>,
    pub rules: Arc<[Rule]>,
    pub rooms: Vec<FileRoom>,
    /// Reads the fields of requests' bodies that the file uses, and their lengths.
    pub fields: RequestFieldsLayer,
    /// The parts of requests' bodies that it reads, in words.
    pub reads: Vec<String>,
    /// Whether requests skip these rooms, as in a tool.
    pub is_without_rooms: bool,
}

/// The statuses of refusals that are not 429, by the names of rules and of policies.
pub(super) struct Refusals {
    pub of_rules: HashMap<String, StatusCode>,
    pub of_policies: HashMap<String, StatusCode>,
}

/// A part of the limits of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitsPart {
    /// All of them; limits that defer refuse here.
    All,
    /// The limits that refuse.
    Refusing,
    /// The limits that defer.
    Deferring,
}

impl LimitsPart {
    fn has(self, budget: &Budget) -> bool {
        match self {
            Self::All => true,
            Self::Refusing => !budget.defers(),
            Self::Deferring => budget.defers(),
        }
    }
}

impl Compiled {
    /// Makes a part of the limits after all policies are opened on this store, where the program finds these keys.
    pub(crate) fn limits(
        &self,
        open: &[RateLimiter],
        keys: &GivenKeys,
        part: LimitsPart,
    ) -> Result<Limits, ConfigError> {
        let sections = self.sections.on(open);
        let mut all = Group::select(Arc::clone(&sections.rules));
        for rule in &*self.rules {
            all = all.and(group_of(rule, &sections, keys, part)?);
        }
        let refusals = Arc::clone(&self.refusals);
        let mut builder = Limits::builder(all).headers(self.headers).refuse_with(move |rule, policy| {
            let of_rule = rule.and_then(|rule| refusals.of_rules.get(rule));
            of_rule.or_else(|| refusals.of_policies.get(policy.name())).copied()
        });
        if sections.may_refuse() {
            let (sections, statuses) = (sections.clone(), Arc::clone(&self.statuses));
            builder = builder.deny_with(move |request| match sections.deny.first(request) {
                Some(denied) => statuses.get(denied).copied(),
                None => sections.unclear(request).map(|_| StatusCode::BAD_REQUEST),
            });
        }
        if !sections.exempt.is_empty() {
            builder = builder.exempt(move |request| sections.is_exempt(request));
        }
        builder.build()
    }

    /// How the keys of a policy start that takes the place of `old`. Other options alone change no key.
    pub(crate) fn inherit(&self, old: &Policy, new: &Policy) -> Inherit {
        let inherit = self.inherit.get(new.name()).filter(|_| old.quotas() != new.quotas());
        inherit.copied().unwrap_or_default()
    }

    /// Whether a rule limits the bandwidth of request bodies.
    pub(crate) fn holds_requests(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.asks.bandwidth.is_some_and(|direction| direction != Direction::Down))
    }

    /// The rules that need the response of a request, or its connection, each with the words that need them.
    pub(crate) fn needs_of_responses(&self) -> Vec<String> {
        let needs = |rule: &Rule| {
            let words = [
                ("refund_if", !rule.asks.refund_if.is_empty()),
                ("settle", rule.asks.settle.is_some()),
                ("bandwidth", rule.asks.bandwidth.is_some()),
                ("in_flight", rule.in_flight.is_some()),
                ("waiting_room", !rule.rooms.is_empty()),
            ];
            let words: Vec<_> =
                words.iter().filter(|(_, is_there)| *is_there).map(|(word, _)| *word).collect();
            (!words.is_empty()).then(|| format!("rule {:?} has {}", rule.name, words.join(", ")))
        };
        self.rules.iter().filter_map(needs).collect()
    }

    /// Each rule with a policy that defers, and that policy.
    pub(crate) fn deferring(&self) -> impl Iterator<Item = (&Rule, &Policy)> {
        let of =
            |rule| Rule::policies(rule).filter(|keyed| keyed.defers).map(move |keyed| (rule, &keyed.policy));
        self.rules.iter().flat_map(of)
    }

    /// The numbers of requests under way at once that instances newly share on the store. They are made before anything is in force,
    /// because a store may be unable to share them.
    pub(crate) fn shared_permits(
        &self,
        store: &Arc<dyn Store>,
        open: &HashMap<String, InFlight>,
    ) -> Result<HashMap<String, InFlight>, ConfigError> {
        let mut shared = HashMap::new();
        for Number { name, at_once, .. } in self.rules.iter().filter_map(|rule| rule.in_flight.as_ref()) {
            let (before, sharing) = (open.get(name).and_then(InFlight::sharing), at_once.sharing());
            if sharing.is_some() && sharing != before && !shared.contains_key(name) {
                shared.insert(name.clone(), at_once.begun(name, store)?);
            }
        }
        Ok(shared)
    }

    /// The numbers of requests under way at once that each rule names. A number that is `open` under its name, and is not newly `shared`,
    /// keeps its count.
    pub(crate) fn in_flight(
        &self,
        store: &Arc<dyn Store>,
        keys: &GivenKeys,
        shared: HashMap<String, InFlight>,
        open: &mut HashMap<String, InFlight>,
    ) -> Result<Vec<Option<InFlightLimit>>, ConfigError> {
        let mut now = shared;
        for Number { name, at_once, .. } in self.rules.iter().filter_map(|rule| rule.in_flight.as_ref()) {
            if now.contains_key(name) {
                continue;
            }
            let kept = open.get(name).filter(|in_flight| at_once.change(in_flight));
            let in_flight = kept.cloned().map_or_else(|| at_once.begun(name, store), Ok)?;
            now.insert(name.clone(), in_flight);
        }
        *open = now;
        let limits = self.rules.iter().map(|rule| {
            let number = rule.in_flight.as_ref()?;
            let mut limit =
                InFlightLimit::new(open.get(&number.name)?.clone()).key(rule.key.given(keys).extractor());
            if let Some(status) = rule.status {
                limit = limit.refuse_with(status);
            }
            if let Some(longest) = number.longest {
                limit = limit.wait_up_to(longest);
            }
            if let Some(classes) = rule.class.clone() {
                limit = limit.class(move |request: RequestView<'_>| classes.class(request));
            }
            if let Some(action) = rule.asks.on_missing_key {
                limit = limit.on_missing_key(action);
            }
            Some(limit)
        });
        Ok(limits.collect())
    }

    /// Combines these limits. Each applies when its rule does: to a request that reaches the rules, and within a group only to the first
    /// rule that matches. The rules that apply are found once for all limits.
    pub(crate) fn at_once(&self, limits: &[Option<InFlightLimit>], sections: Sections) -> InFlightLimits {
        let mut place = 0..;
        let places = limits.iter().map(|limit| limit.iter().filter_map(|_| place.next()).collect()).collect();
        let select = sections.select(places);
        let all = InFlightLimits::new(limits.iter().flatten().cloned()).headers(self.headers);
        all.select(move |request: RequestView<'_>| Selected::from_iter(select(request)))
    }

    /// Joins the doors of the rooms. A request comes to a door if the rules of its room apply: when it reaches the rules, and within a
    /// group only by the first rule that matches.
    pub(crate) fn doors(&self, each: Vec<Arc<dyn Door>>, sections: Sections) -> Doors {
        if each.is_empty() {
            return Doors::default();
        }
        let of_rules = self.rules.iter().map(|rule| rule.rooms.clone()).collect();
        Doors { each, select: Some(Box::new(sections.select(of_rules))) }
    }

    /// Reports, for each rule alone, the mistakes that show only when its limits are made.
    pub(crate) fn check(&self, open: &[RateLimiter], problems: &mut Problems<'_>) {
        let sections = self.sections.on(open);
        for rule in &*self.rules {
            if let Err(error) = group_of(rule, &sections, &GivenKeys::new(), LimitsPart::All) {
                problems.error(rule.place, error.problem());
            }
            rule.check_cost(problems);
        }
    }
}

/// The limits of one rule, which apply together.
fn group_of(
    rule: &Rule,
    sections: &Sections,
    keys: &GivenKeys,
    part: LimitsPart,
) -> Result<Group, ConfigError> {
    let limiter = |name: &str| sections.limiters.get(name).cloned();
    let mut group = Group::new(Choose::All);
    for budget in rule.budgets.iter().filter(|budget| part.has(budget)) {
        let limit = match budget {
            Budget::Policy(keyed) => match limiter(keyed.policy.name()) {
                Some(limiter) => keyed.given(keys).limit(limiter),
                None => continue,
            },
            Budget::Tiers(tiers) => match tiers.given(keys).limit(limiter)? {
                Some(limit) => limit,
                None => continue,
            },
        };
        group = group.and(rule.finish(limit, keys)?);
    }
    Ok(group)
}

/// The sections of a file, for requests. Clones share them.
#[derive(Clone)]
pub(crate) struct Sections {
    pub deny: Arc<Choice>,
    pub exempt: Arc<Choice>,
    /// Chooses the rules that apply to a request.
    pub rules: Arc<Choice>,
    /// Whether a condition looks at the host.
    reads_host: bool,
    /// The limiters of the file's policies, by name; none before they are open.
    pub(super) limiters: Arc<FastMap<String, RateLimiter>>,
}

const TWO_HOSTS: &str =
    "the request has two fields Host, of which another server may read the other one: it is refused with 400";
const NO_HOST: &str = "the field Host of the request is not text: it is refused with 400";
const TORN: &str = "the path has dots, and its two readings meet rules that may spend from one policy: it is refused with 400";

impl Sections {
    pub(super) fn new(deny: Choice, exempt: Choice, rules: Choice) -> Self {
        let reads_host = [&deny, &exempt, &rules].iter().any(|choice| choice.reads_host());
        let [deny, exempt, rules] = [deny, exempt, rules].map(Arc::new);
        Self { deny, exempt, rules, reads_host, limiters: Arc::default() }
    }

    /// A copy of the sections with the open policies.
    pub(crate) fn on(&self, open: &[RateLimiter]) -> Self {
        let named = open.iter().map(|limiter| (limiter.policy().name().to_owned(), limiter.clone()));
        Self { limiters: Arc::new(named.collect()), ..self.clone() }
    }

    /// Whether a request may be refused before any limit.
    pub(super) fn may_refuse(&self) -> bool {
        !self.deny.is_empty() || self.rules.may_be_torn() || self.reads_host
    }

    /// The reason why a request is refused with 400: it names two hosts, or one that cannot be read, and the rules read the host; or its path has dots and would spend
    /// from one policy in two ways. A policy that is not enforced, by the file or by an operator, refuses no request.
    pub(crate) fn unclear(&self, request: RequestView<'_>) -> Option<&'static str> {
        if self.reads_host {
            let mut hosts = request.headers.get_all(header::HOST).iter();
            match (hosts.next().map(|host| host.to_str().is_ok()), hosts.next()) {
                (_, Some(_)) => return Some(TWO_HOSTS),
                (Some(false), None) => return Some(NO_HOST),
                _ => {}
            }
        }
        let is_enforced = |policy: &str| {
            let limiter = self.limiters.get(policy);
            limiter.is_some_and(|limiter| limiter.with_policy(Policy::mode) == PolicyMode::Enforce)
        };
        self.rules.is_torn(request, is_enforced).then_some(TORN)
    }

    /// Whether a request skips the rules. A path with dots is never exempt, because only the inner service knows its meaning. A denial
    /// applies regardless of other rules.
    pub(super) fn is_exempt(&self, request: RequestView<'_>) -> bool {
        self.exempt.first(request).is_some()
            && !has_dots(request.path())
            && self.unclear(request).is_none()
            && self.deny.first(request).is_none()
    }

    /// Selects items of rules by index, each once, for the rules that apply to a request. No rule applies to a request that is refused
    /// before them or exempt.
    pub(super) fn select(
        self,
        of_rules: Vec<Vec<usize>>,
    ) -> impl Fn(RequestView<'_>) -> SmallVec<[usize; 2]> + Send + Sync + 'static {
        move |request| {
            let mut found = SmallVec::new();
            self.rules.each_applying(request, |rule| {
                for place in of_rules.get(rule).into_iter().flatten() {
                    if !found.contains(place) {
                        found.push(*place);
                    }
                }
            });
            let meets_none = || {
                self.deny.first(request).is_some()
                    || self.unclear(request).is_some()
                    || self.is_exempt(request)
            };
            if !found.is_empty() && meets_none() { SmallVec::new() } else { found }
        }
    }
}
