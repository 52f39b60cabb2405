//! Policies that are chosen per request, and kept open for the next one: [`Chosen`].
//!
//! Opening a policy takes memory and a lock, so those chosen lately stay open, up to a bound. A
//! name is a bucket: when a name comes with other quotas, the open policy is replaced and what was
//! spent counts on.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{ConfigError, Policy, RateLimiter, Store};

use crate::limits::pick::{Pick, Which};

/// How many chosen policies stay open unless [`Limit::open_at_most`](crate::Limit::open_at_most) says another number.
const OPEN_AT_MOST: usize = 100;

/// The choice of [`Limit::by`](crate::Limit::by) for a request.
///
/// A [`Policy`], a [`PolicyBuilder`] and a [`RateLimiter`] are turned into one, and so is a `Result` of these: a request
/// whose policy is wrong is refused with 500, and the error is logged.
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
    /// No policy could be made for it: the request is refused with 500.
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

/// The policies that were chosen lately, open on one store.
pub(crate) struct OpenPolicies {
    store: Arc<dyn Store>,
    at_most: AtomicUsize,
    keeps_accounts: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    policies: HashMap<Arc<Policy>, Used>,
    /// Counts the uses.
    clock: u64,
}

/// A limiter, and when it was last used.
struct Used {
    limiter: RateLimiter,
    last: u64,
}

impl OpenPolicies {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            at_most: AtomicUsize::new(OPEN_AT_MOST),
            keeps_accounts: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn set_at_most(&self, policies: usize) {
        // Relaxed, here and below: settings are made before the first request.
        self.at_most.store(policies.max(1), Ordering::Relaxed);
    }

    /// From now on refunds of whatever is chosen are exact.
    pub(crate) fn keep_accounts(&self) -> Result<(), ConfigError> {
        self.keeps_accounts.store(true, Ordering::Relaxed);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.policies.values().try_for_each(|used| used.limiter.keep_accounts())
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
            return Err(ConfigError::new(
                ConfigErrorKind::Layer,
                format!(
                    "the limiter {name:?} that was chosen for a request is on another store than its limit: open it on that one"
                ),
            ));
        }
        self.with_accounts(limiter)
    }

    /// The limiter of a policy: the one that is open, or a new one. A policy of the name of an open one replaces it.
    fn opened(&self, policy: Arc<Policy>) -> Result<RateLimiter, ConfigError> {
        let mut guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Open { policies, clock } = &mut *guard;
        *clock += 1;
        if let Some(used) = policies.get_mut(&policy) {
            used.last = *clock;
            return Ok(used.limiter.clone());
        }
        let before = policies.keys().find(|open| open.name() == policy.name()).cloned();
        let limiter = match before.and_then(|before| policies.remove(&before)) {
            Some(Used { limiter, .. }) => {
                limiter.replace(Policy::clone(&policy), Inherit::Spent)?;
                limiter
            }
            None => {
                if policies.len() >= self.at_most.load(Ordering::Relaxed) {
                    let oldest = policies.iter().min_by_key(|(_, used)| used.last);
                    if let Some(oldest) = oldest.map(|(policy, _)| Arc::clone(policy)) {
                        policies.remove(&oldest);
                    }
                }
                self.with_accounts(RateLimiter::new(Arc::clone(&self.store), Policy::clone(&policy))?)?
            }
        };
        policies.insert(policy, Used { limiter: limiter.clone(), last: *clock });
        Ok(limiter)
    }

    fn with_accounts(&self, limiter: RateLimiter) -> Result<RateLimiter, ConfigError> {
        if self.keeps_accounts.load(Ordering::Relaxed) {
            limiter.keep_accounts()?;
        }
        Ok(limiter)
    }
}

impl fmt::Debug for OpenPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(open.policies.keys().map(|policy| policy.to_string())).finish()
    }
}
