//! A file that is understood, and the limits that it makes once its policies are open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use http::{StatusCode, header};
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{ConfigError, Policy, RateLimiter};
use sluicegate_tower::bandwidth::Direction;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::has_dots;
use sluicegate_tower::limits::{Choose, Group, Limits};
use sluicegate_tower::respond::HeaderFields;

use super::FastMap;
use super::choice::Choice;
use super::own::WithKeys;
use super::rooms::FileRoom;
use super::rule::{Budget, Rule};
use super::store::NamedStore;
use crate::at::Position;
use crate::error::Problems;

/// The contents of a file, understood: policies to be opened, and rules that are limits once they are.
pub(crate) struct Compiled {
    pub policies: Vec<Policy>,
    /// Policies that no rule and no tier uses.
    pub unused: Vec<Policy>,
    /// The `overrides` of both.
    pub with_keys: Arc<WithKeys>,
    /// The quotas of single keys and of tiers, each by the name of its policy or tiers and its own.
    pub single_keys: Vec<(String, String)>,
    /// Other files that it was read from, and what they held.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    pub(super) headers: HeaderFields,
    /// The store that the file names, if it names one.
    pub store: Option<NamedStore>,
    pub deny: Arc<Choice>,
    /// The status of each denial.
    pub(super) statuses: Arc<[StatusCode]>,
    pub exempt: Arc<Choice>,
    /// Chooses the rules that apply to a request.
    pub choice: Arc<Choice>,
    pub(super) rules: Vec<Rule>,
    pub rooms: Vec<FileRoom>,
    /// The fields of requests' bodies that something looks at.
    pub body_fields: Vec<String>,
    /// Whether requests skip these rooms, as in a tool.
    pub is_without_rooms: bool,
}

/// A part of the limits of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitsPart {
    /// All of them; those that defer refuse.
    All,
    /// Those that refuse.
    Refusing,
    /// Those that defer.
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
    /// A part of the limits, now that all policies are open on this store.
    pub(crate) fn limits(&self, open: &[RateLimiter], part: LimitsPart) -> Result<Limits, ConfigError> {
        let limiters = by_name(open);
        let mut all = Group::select(Arc::clone(&self.choice));
        for rule in &self.rules {
            all = all.and(group_of(rule, &limiters, part)?);
        }
        let mut builder = Limits::builder(all).headers(self.headers);
        let unclear = self.unclear(open);
        if !self.deny.is_empty() || self.choice.may_be_torn() || self.reads_host() {
            let (deny, statuses) = (Arc::clone(&self.deny), Arc::clone(&self.statuses));
            let unclear = Arc::clone(&unclear);
            builder = builder.deny_with(move |request| {
                let denied = if deny.is_empty() { None } else { deny.first(request) };
                match denied {
                    Some(denied) => statuses.get(denied).copied(),
                    None => unclear(request).map(|_| StatusCode::BAD_REQUEST),
                }
            });
        }
        if !self.exempt.is_empty() {
            let (exempt, deny) = (Arc::clone(&self.exempt), Arc::clone(&self.deny));
            builder = builder.exempt(move |request| is_exempt((&exempt, &deny), &unclear, request));
        }
        builder.build()
    }

    /// Whether a rule holds bodies of requests to a bandwidth.
    pub(crate) fn holds_requests(&self) -> bool {
        self.rules.iter().any(|rule| rule.bandwidth.is_some_and(|direction| direction != Direction::Down))
    }

    /// The rules that need the response of a request, or its connection, each with the words of the file that do.
    pub(crate) fn needs_of_responses(&self) -> Vec<String> {
        let needs = |rule: &Rule| {
            let words = [
                ("refund_if", !rule.refund_if.is_empty()),
                ("settle", rule.settle.is_some()),
                ("bandwidth", rule.bandwidth.is_some()),
                ("in_flight", rule.in_flight.is_some()),
                ("waiting_room", !rule.rooms.is_empty()),
            ];
            let words: Vec<_> =
                words.iter().filter(|(_, is_there)| *is_there).map(|(word, _)| *word).collect();
            (!words.is_empty()).then(|| format!("rule {:?} has {}", rule.name, words.join(", ")))
        };
        self.rules.iter().filter_map(needs).collect()
    }

    /// The policies of each rule that defer, in order.
    pub(crate) fn deferring(&self) -> impl Iterator<Item = Vec<String>> {
        self.rules.iter().map(|rule| {
            let deferring = rule.policies().filter(|keyed| keyed.defers);
            deferring.map(|keyed| keyed.policy.name().to_owned()).collect()
        })
    }

    /// The first rule with a policy that defers, its place, and that policy.
    pub(crate) fn first_that_defers(&self) -> Option<(&str, Position, &Policy)> {
        let found =
            self.rules.iter().find_map(|rule| Some((rule, rule.policies().find(|keyed| keyed.defers)?)));
        found.map(|(rule, keyed)| (&*rule.name, rule.place, &keyed.policy))
    }

    fn reads_host(&self) -> bool {
        [&self.deny, &self.exempt, &self.choice].iter().any(|choice| choice.reads_host())
    }

    /// Says why a request is refused with 400: it names two hosts and the rules look at one, or its path has dots and would spend from one
    /// policy in two ways. A policy that is not enforced, by the file or by an operator, refuses nobody.
    pub(crate) fn unclear(&self, open: &[RateLimiter]) -> Unclear {
        let reads_host = self.reads_host();
        let choice = Arc::clone(&self.choice);
        let limiters: FastMap<String, RateLimiter> =
            open.iter().map(|limiter| (limiter.policy().name().to_owned(), limiter.clone())).collect();
        let is_enforced = move |policy: &str| {
            let limiter = limiters.get(policy);
            limiter.is_some_and(|limiter| limiter.with_policy(Policy::mode) == PolicyMode::Enforce)
        };
        Arc::new(move |request| match request {
            request if reads_host && request.headers.get_all(header::HOST).iter().nth(1).is_some() => {
                Some(TWO_HOSTS)
            }
            request if choice.is_torn(request, &is_enforced) => Some(TORN),
            _ => None,
        })
    }

    /// Reports, for each rule alone, the mistakes that show only when its limits are put together.
    pub(crate) fn check(&self, open: &[RateLimiter], problems: &mut Problems<'_>) {
        let limiters = by_name(open);
        for rule in &self.rules {
            if let Err(error) = group_of(rule, &limiters, LimitsPart::All) {
                problems.error(rule.place, error.problem());
            }
            rule.check_cost(problems);
        }
    }

    /// The number of limits of each rule, in order.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.rules.iter().map(|rule| rule.budgets.len())
    }
}

/// Whether a request skips the rules. A path with dots is never exempt, because only the service behind knows where it leads. A denial
/// holds wherever the other rules stand.
pub(super) fn is_exempt(
    (exempt, deny): (&Choice, &Choice),
    unclear: &Unclear,
    request: RequestView<'_>,
) -> bool {
    exempt.first(request).is_some()
        && !has_dots(request.path())
        && unclear(request).is_none()
        && deny.first(request).is_none()
}

/// Says why it is unclear which rules a request meets.
pub(crate) type Unclear = Arc<dyn Fn(RequestView<'_>) -> Option<&'static str> + Send + Sync>;

const TWO_HOSTS: &str =
    "the request has two fields Host, of which another server may read the other one: it is refused with 400";
const TORN: &str = "the path has dots, and its two readings meet rules that may spend from one policy: it is refused with 400";

type ByName<'a> = HashMap<String, &'a RateLimiter>;

fn by_name(open: &[RateLimiter]) -> ByName<'_> {
    open.iter().map(|limiter| (limiter.policy().name().to_owned(), limiter)).collect()
}

/// The limits of one rule, which apply together.
fn group_of(rule: &Rule, open: &ByName<'_>, part: LimitsPart) -> Result<Group, ConfigError> {
    let limiter = |name: &str| open.get(name).copied().cloned();
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
