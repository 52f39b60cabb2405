//! The ask of one limit for a request, or the reason why it has none.

use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Key, RateLimiter};
use std::mem;

use crate::key::MissingKey;
use crate::key::missing::Keyed;
use crate::limits::limit::Limit;
use crate::limits::pick::Which;
use crate::limits::plan::LimitPlan;
use crate::respond::stop::Stop;

/// The ask of a limit: its limiter, the key and the cost.
///
/// It names the limiter by its index in the plan, so that a request that is decided at once
/// clones nothing.
#[derive(Debug)]
pub(crate) struct RequestAsk {
    /// The index of the limit.
    pub(crate) limit: usize,
    pub(crate) which: Which,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// The ask of a limit, without the key.
#[derive(Debug)]
pub(crate) struct AskTerms {
    /// The index of the limit.
    pub(crate) limit: usize,
    pub(crate) mode: PolicyMode,
    pub(crate) which: Which,
    pub(crate) cost: u64,
}

/// The finding of a limit for a request.
pub(crate) enum LimitFinding {
    /// The limit asks this; the answer is enforced or in shadow.
    Asks { ask: RequestAsk, is_enforced: bool },
    /// The limit delays bodies of the request by this limiter and key; the cost has no meaning.
    Holds(RequestAsk),
    /// The limit asks nothing, for this reason.
    Nothing(WhyNot),
    /// The request is refused.
    Refuses(Box<Stop>),
}

/// The reason why a limit asks nothing.
#[derive(Debug)]
pub(crate) enum WhyNot {
    /// One of its conditions does not hold.
    Condition,
    /// The request costs 0.
    Free,
    /// Its tier or its chosen policy is unlimited.
    Unlimited,
    /// Its policy is off.
    Off,
    /// Its key is missing, and such requests pass.
    NoKey(MissingKey),
    /// It cannot be asked, but does not refuse the request, because it is in shadow.
    TriedOut(Box<Stop>),
}

impl RequestAsk {
    /// The ask with this key.
    #[inline]
    pub(crate) fn new(terms: AskTerms, key: Key) -> Self {
        let AskTerms { limit, which, cost, .. } = terms;
        Self { limit, which, key, cost }
    }

    #[inline]
    pub(crate) fn limiter<'a>(&'a self, plan: &'a LimitPlan) -> &'a RateLimiter {
        plan.limits[self.limit].source.limiter(&self.which)
    }
}

impl AskTerms {
    /// Puts this key under the quotas that an operator has given to it, if any. The limit is the one of these terms.
    #[inline]
    pub(crate) fn give(&mut self, limit: &Limit, key: &Key) {
        let limiter = limit.source.limiter(&self.which);
        // No key has any under a policy that was never replaced.
        if limiter.replacements() > 0
            && let Some(given) = limiter.given(key.as_ref())
        {
            self.which = Which::Chosen(given);
        }
    }

    /// Moves them out; the rest must not be asked.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self { which: mem::replace(&mut self.which, Which::Known(0)), ..*self }
    }
}

impl LimitFinding {
    /// The finding of a limit after its key lookup.
    pub(super) fn with_key(plan: &LimitPlan, mut terms: AskTerms, key: Result<Key, MissingKey>) -> Self {
        let (limit, mode) = (&plan.limits[terms.limit], terms.mode);
        let key = match key {
            Ok(mut key) => {
                key.set_kind(limit.kind);
                key
            }
            Err(missing) => match limit.when_missing.treat(missing, || limit.title()) {
                Keyed::Key(shared) => shared,
                Keyed::Skipped(missing) => return Self::Nothing(WhyNot::NoKey(missing)),
                Keyed::Rejected(missing, status) => {
                    return Self::refusing(mode, Stop::MissingKey(missing, status));
                }
            },
        };
        terms.give(limit, &key);
        let ask = RequestAsk::new(terms, key);
        match limit.bandwidth {
            Some(_) => Self::Holds(ask),
            None => Self::Asks { ask, is_enforced: mode == PolicyMode::Enforce },
        }
    }

    /// A refusal, if the limit is enforced.
    pub(super) fn refusing(mode: PolicyMode, why: Stop) -> Self {
        match mode {
            PolicyMode::Enforce => Self::Refuses(Box::new(why)),
            PolicyMode::Off => Self::Nothing(WhyNot::Off),
            _ => Self::Nothing(WhyNot::TriedOut(Box::new(why))),
        }
    }
}
