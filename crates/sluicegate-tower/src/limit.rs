//! One limit of a layer: a limiter, whose bucket, and how much a request costs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use sluicegate_core::{ConfigError, ConfigErrorKind, RateLimiter};

use crate::extract::PeerIp;
use crate::key::{KeyExtractor, MissingKey};

/// A limiter with the key that it is asked about and the cost of a request.
///
/// ```
/// use sluicegate_tower::{Header, Limit, OnMissingKey, PeerIp, KeyExtractor};
/// use sluicegate_core::{MemoryStore, Policy};
/// use http::StatusCode;
///
/// let reports = Policy::token_bucket("reports", "100/min").on(&MemoryStore::new())?;
/// let limit = Limit::new(reports)
///     .key(Header::new("x-api-key")?)
///     .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED))
///     .cost(10)?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a limit does nothing until it is put into a layer"]
pub struct Limit {
    pub(crate) limiter: RateLimiter,
    pub(crate) key: Box<dyn KeyExtractor>,
    pub(crate) cost: u64,
    pub(crate) on_missing_key: OnMissingKey,
    warned: AtomicBool,
}

/// What happens to a request whose key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one bucket, and a warning is logged once.
    Share,
    /// They are refused with this status.
    Reject(StatusCode),
    /// This limit does not apply to them.
    Skip,
}

impl Limit {
    /// The limiter, with one unit per request from the bucket of its peer address.
    pub fn new(limiter: RateLimiter) -> Self {
        Self {
            limiter,
            key: Box::new(PeerIp::new()),
            cost: 1,
            on_missing_key: OnMissingKey::Share,
            warned: AtomicBool::new(false),
        }
    }

    /// Whose bucket a request spends from. Default: [`PeerIp`].
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = Box::new(key);
        self
    }

    /// Units that a request spends. Default: 1.
    ///
    /// # Errors
    /// When the cost is 0, which would limit nothing, or above what a quota of the policy ever lets pass at once: such a limit would refuse everything.
    pub fn cost(mut self, cost: u64) -> Result<Self, ConfigError> {
        let policy = self.limiter.policy();
        if cost == 0 {
            return Err(ConfigError::new(
                ConfigErrorKind::Layer,
                format!(
                    "a cost of 0 would let every request pass policy {:?}: use at least 1",
                    policy.name()
                ),
            ));
        }
        if let Some(quota) = policy.quotas().iter().find(|quota| quota.rule().capacity() < cost) {
            return Err(ConfigError::new(
                ConfigErrorKind::Layer,
                format!(
                    "cost {cost} is above burst {} of {} in policy {:?}: no request would ever pass",
                    quota.rule().capacity(),
                    quota.quota(),
                    policy.name()
                ),
            ));
        }
        self.cost = cost;
        Ok(self)
    }

    /// What happens to a request whose key is missing. Default: [`OnMissingKey::Share`].
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.on_missing_key = action;
        self
    }

    /// Says once that requests without a key share a bucket: usually the server is wired up wrongly.
    pub(crate) fn warn_once(&self, missing: &MissingKey) {
        // Relaxed: at worst two threads warn.
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                policy = self.limiter.policy().name(),
                "requests without a key share one bucket of this policy: {missing}"
            );
        }
    }
}

impl From<RateLimiter> for Limit {
    fn from(limiter: RateLimiter) -> Self {
        Self::new(limiter)
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("limiter", &self.limiter)
            .field("cost", &self.cost)
            .field("on_missing_key", &self.on_missing_key)
            .finish_non_exhaustive()
    }
}
