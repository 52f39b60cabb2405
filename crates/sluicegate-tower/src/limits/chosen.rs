//! Policies that are chosen per request, and kept open for the next one: [`Chosen`].
//!
//! Opening a policy takes memory and a lock, so chosen policies stay open, up to a bound. Closing a policy may make the store
//! forget the state of its keys, so a policy with keys that are not at rest stays open. A name is a bucket:
//! if its quotas change, spent units still count.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use sluicegate_core::limiter::{ForLayers, Inherit};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{Event, Subject};
use sluicegate_core::{ConfigError, Policy, Quota, RateLimiter, Store};

use crate::guard::once::Seldom;
use crate::key::text::config_error;
use crate::limits::pick::{Pick, Which};

/// The number of chosen policies that stay open, unless [`Limit::open_at_most`](crate::Limit::open_at_most) sets another.
const OPEN_AT_MOST: usize = 100;

/// The factor for the number of open policies while their keys are in debt.
const STRETCH: usize = 10;

/// The number of policies checked when one has to be closed: more than are opened, so that policies at rest are closed in time.
const LOOKS: usize = 4;

/// The time before a policy that had to stay open is looked at again: a look may read whole tables, under the lock of all requests.
const LOOKED_AT_AFTER_US: u64 = 60_000_000;

/// The choice of [`Limit::by`](crate::Limit::by) for a request.
///
/// A [`Policy`], a [`PolicyBuilder`] and a [`RateLimiter`] convert into it, as does a `Result` of these: a request
/// with an invalid policy is refused with 500, and the error is logged.
///
/// ```
/// use sluicegate_core::Policy;
/// use sluicegate_tower::limits::Chosen;
///
/// let chosen: Chosen = Policy::gcra("pro", "1000/min").into();
/// assert!(matches!(chosen, Chosen::Policy(_)));
/// // A mistake in a database row is a mistake of that request.
/// let chosen: Chosen = Policy::gcra("pro", "1000/fortnight").into();
/// assert!(matches!(chosen, Chosen::Mistake(_)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Chosen {
    /// This policy, opened on the store of the limit.
    Policy(Arc<Policy>),
    /// This limiter, which must be on the store of the limit.
    Limiter(RateLimiter),
    /// The limit does not apply to this request.
    Unlimited,
    /// The request is refused with this status.
    Refuse(StatusCode),
    /// The policy is invalid: the request is refused with 500.
    Mistake(ConfigError),
}

impl From<Policy> for Chosen {
    fn from(policy: Policy) -> Self {
        Self::Policy(Arc::new(policy))
    }
}

impl From<Arc<Policy>> for Chosen {
    fn from(policy: Arc<Policy>) -> Self {
        Self::Policy(policy)
    }
}

impl From<PolicyBuilder> for Chosen {
    fn from(policy: PolicyBuilder) -> Self {
        policy.build().into()
    }
}

impl From<RateLimiter> for Chosen {
    fn from(limiter: RateLimiter) -> Self {
        Self::Limiter(limiter)
    }
}

impl<C: Into<Self>> From<Result<C, ConfigError>> for Chosen {
    fn from(chosen: Result<C, ConfigError>) -> Self {
        chosen.map_or_else(Self::Mistake, Into::into)
    }
}

/// Recently chosen policies, open on one store.
pub(crate) struct OpenPolicies {
    store: Arc<dyn Store>,
    at_most: AtomicUsize,
    keeps_accounts: AtomicBool,
    open: Mutex<OpenTable>,
    crowded: Seldom,
}

#[derive(Default)]
struct OpenTable {
    by_name: HashMap<Arc<str>, Used>,
    /// Each policy once, with its number of uses at the last check. The first is checked next when one has to be closed.
    queue: VecDeque<(Arc<str>, u64)>,
    /// Counts the uses.
    uses: u64,
}

/// An open policy.
struct Used {
    policy: Arc<Policy>,
    limiter: RateLimiter,
    /// The last use.
    last: u64,
    /// When it was last found that closing it would forget something.
    kept_at_us: Option<u64>,
}

impl OpenPolicies {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            at_most: AtomicUsize::new(OPEN_AT_MOST),
            keeps_accounts: AtomicBool::new(false),
            open: Mutex::default(),
            crowded: Seldom::once_a_minute(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whether a policy of this name is open here.
    pub(super) fn has(&self, policy: &str) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).by_name.contains_key(policy)
    }

    pub(super) fn set_at_most(&self, policies: usize) {
        // Relaxed, here and below: settings are made before the first request.
        self.at_most.store(policies.max(1), Ordering::Relaxed);
    }

    /// Makes refunds exact, also for policies that are chosen later.
    pub(crate) fn keep_accounts(&self) -> Result<(), ConfigError> {
        self.keeps_accounts.store(true, Ordering::Relaxed);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.by_name.values().try_for_each(|used| used.limiter.remember(Policy::with_refunds))
    }

    pub(super) fn pick(&self, chosen: Chosen) -> Pick {
        let limiter = match chosen {
            Chosen::Unlimited => return Pick::Unlimited,
            Chosen::Refuse(status) => return Pick::Refused(status),
            Chosen::Mistake(error) => return Pick::Mistake(error),
            Chosen::Limiter(limiter) => self.own(limiter),
            Chosen::Policy(policy) => self.opened(policy),
        };
        limiter.map_or_else(Pick::Mistake, |limiter| Pick::Limiter(Which::Chosen(limiter)))
    }

    /// A limiter that was made elsewhere.
    fn own(&self, limiter: RateLimiter) -> Result<RateLimiter, ConfigError> {
        if !Arc::ptr_eq(limiter.store(), &self.store) {
            let name = limiter.policy().name().to_owned();
            return Err(config_error(format!(
                "the limiter {name:?} that was chosen for a request is on another store than its limit: open it on that one"
            )));
        }
        self.with_accounts(limiter)
    }

    /// The limiter of a policy: the one that is open under its name, or a new one.
    fn opened(&self, policy: Arc<Policy>) -> Result<RateLimiter, ConfigError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.uses += 1;
        let uses = open.uses;
        if let Some(used) = open.by_name.get_mut(policy.name()) {
            used.last = uses;
            return used.limiter_for(policy);
        }
        let at_most = self.at_most.load(Ordering::Relaxed);
        if open.by_name.len() >= at_most {
            open.close_some(at_most, self.store.now_us());
        }
        let count = open.by_name.len();
        if count >= at_most.saturating_mul(STRETCH) {
            return Err(crowded(&policy, count));
        }
        let limiter =
            self.with_accounts(RateLimiter::new(Arc::clone(&self.store), Policy::clone(&policy))?)?;
        let name: Arc<str> = policy.name().into();
        open.queue.push_back((Arc::clone(&name), uses));
        open.by_name.insert(name, Used { policy, limiter: limiter.clone(), last: uses, kept_at_us: None });
        drop(open);
        if count >= at_most {
            self.report_crowd(&limiter, count + 1, at_most);
        }
        Ok(limiter)
    }

    /// Warns that more policies are open than configured.
    fn report_crowd(&self, limiter: &RateLimiter, open: usize, at_most: usize) {
        let policy = limiter.policy();
        self.store.notice(&Event::PolicyKeptOpen { subject: Subject::of(policy.name()), open });
        if self.crowded.is_due() {
            tracing::warn!(
                policy = policy.name(),
                open,
                at_most,
                "more policies of Limit::by stay open than it keeps, because keys owe under each of them: let requests bring quotas by \
                 Limit::quota_by where policies differ only in numbers, or raise Limit::open_at_most; said once a minute"
            );
        }
    }

    fn with_accounts(&self, limiter: RateLimiter) -> Result<RateLimiter, ConfigError> {
        if self.keeps_accounts.load(Ordering::Relaxed) {
            limiter.remember(Policy::with_refunds)?;
        }
        Ok(limiter)
    }
}

impl Used {
    /// Whether closing it forgets nothing. Asked of its store once a minute.
    fn may_close(&mut self, now_us: u64) -> bool {
        if self.kept_at_us.is_some_and(|kept_at_us| kept_at_us.abs_diff(now_us) < LOOKED_AT_AFTER_US) {
            return false;
        }
        let may_close = self.limiter.may_close();
        self.kept_at_us = (!may_close).then_some(now_us);
        may_close
    }

    /// The limiter of a policy of this name. If only quotas differ, the key has quotas of its own; any other policy replaces the open one.
    fn limiter_for(&mut self, policy: Arc<Policy>) -> Result<RateLimiter, ConfigError> {
        if policy == self.policy {
            return Ok(self.limiter.clone());
        }
        let quotas: Vec<Quota> = policy.quotas().iter().map(|quota| quota.quota()).collect();
        if quotas.len() == self.policy.quotas().len() && self.policy.with_quotas(&quotas)? == *policy {
            return self.limiter.with_quotas(quotas);
        }
        self.limiter.replace(Policy::clone(&policy), Inherit::Spent)?;
        self.policy = policy;
        Ok(self.limiter.clone())
    }
}

impl OpenTable {
    /// Closes a few of the least recently chosen policies, unless state would be lost.
    fn close_some(&mut self, at_most: usize, now_us: u64) {
        for _ in 0..LOOKS {
            let Some((name, looked_at)) = self.queue.pop_front() else { return };
            let Some(used) = self.by_name.get_mut(&name) else { continue };
            if used.last <= looked_at && used.may_close(now_us) {
                self.by_name.remove(&name);
                if self.by_name.len() < at_most {
                    return;
                }
            } else {
                self.queue.push_back((name, used.last));
            }
        }
    }
}

/// The error for too many open policies.
fn crowded(policy: &Policy, open: usize) -> ConfigError {
    let problem = format!(
        "{open} policies that requests have chosen are open, and keys owe under each of them: none can be closed for this one without forgetting that; let requests bring quotas by Limit::quota_by where policies differ only in numbers, or raise Limit::open_at_most"
    );
    config_error(problem).in_policy(policy.name())
}

impl fmt::Debug for OpenPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(open.by_name.values().map(|used| used.policy.to_string())).finish()
    }
}
