//! The sections that a request goes through: denials, then exemptions, then rules.

use std::sync::Arc;

use http::header;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::path::has_dots;
use smallvec::SmallVec;

use super::FastMap;
use super::choice::Choice;

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
