//! A compiled file, and the limits that it makes once its policies are open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use http::{StatusCode, header};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{ConfigError, Policy, RateLimiter};
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::has_dots;
use sluicegate_tower::limits::{Choose, Group, Limits};
use sluicegate_tower::request_fields::OnUnreadable;
use sluicegate_tower::respond::HeaderFields;
use smallvec::SmallVec;

use super::FastMap;
use super::choice::Choice;
use super::keys::GivenKeys;
use super::own::WithKeys;
use super::rooms::FileRoom;
use super::rule::{Budget, Rule};
use super::store::NamedStore;
use crate::error::Problems;

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
    /// Their extractors, once a program puts the file in force.
    pub given_keys: Arc<OnceLock<GivenKeys>>,
    /// Other files that it was read from, and their contents.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    pub(super) headers: HeaderFields,
    /// The store that the file names, if it names one.
    pub store: Option<NamedStore>,
    /// Its sections, before the policies are open.
    pub sections: Sections,
    /// The status of each denial.
    pub(super) statuses: Arc<[StatusCode]>,
    pub rules: Arc<[Rule]>,
    pub rooms: Vec<FileRoom>,
    /// The fields of requests' bodies that the file uses.
    pub body_fields: Vec<String>,
    /// The treatment of requests whose bodies cannot be read.
    pub on_unreadable_body: OnUnreadable,
    /// Whether requests skip these rooms, as in a tool.
    pub is_without_rooms: bool,
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
    /// Makes a part of the limits after all policies are opened on this store.
    pub(crate) fn limits(&self, open: &[RateLimiter], part: LimitsPart) -> Result<Limits, ConfigError> {
        let sections = self.sections.on(open);
        let mut all = Group::select(Arc::clone(&sections.rules));
        for rule in &*self.rules {
            all = all.and(group_of(rule, &sections, part)?);
        }
        let mut builder = Limits::builder(all).headers(self.headers);
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

    /// Reports, for each rule alone, the mistakes that show only when its limits are made.
    pub(crate) fn check(&self, open: &[RateLimiter], problems: &mut Problems<'_>) {
        let sections = self.sections.on(open);
        for rule in &*self.rules {
            if let Err(error) = group_of(rule, &sections, LimitsPart::All) {
                problems.error(rule.place, error.problem());
            }
            rule.check_cost(problems);
        }
    }
}

/// The limits of one rule, which apply together.
fn group_of(rule: &Rule, sections: &Sections, part: LimitsPart) -> Result<Group, ConfigError> {
    let limiter = |name: &str| sections.limiters.get(name).cloned();
    let mut group = Group::new(Choose::All);
    for budget in rule.budgets.iter().filter(|budget| part.has(budget)) {
        let limit = match budget {
            Budget::Policy(keyed) => match limiter(keyed.policy.name()) {
                Some(limiter) => keyed.limit(limiter),
                None => continue,
            },
            Budget::Tiers(tiers) => match tiers.limit(limiter)? {
                Some(limit) => limit,
                None => continue,
            },
        };
        group = group.and(rule.finish(limit)?);
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
