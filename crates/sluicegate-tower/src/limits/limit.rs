//! One limit of a layer: a limiter, whose bucket, and how much a request costs.

use std::fmt;
use std::slice;
use std::sync::Arc;

use http::response;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, RateLimiter};

use crate::key::PeerIp;
use crate::key::missing::{OnMissingKey, WhenMissing};
use crate::key::{KeyExtractor, MissingKey, RequestView};
use crate::limits::conditions::{Asking, Conditions};
use crate::limits::tiers::Tiers;

/// A limiter with the key that it is asked about and the cost of a request.
///
/// ```
/// use sluicegate_tower::{Limit, PeerIp, KeyExtractor};
/// use sluicegate_tower::key::{HeaderKey, OnMissingKey};
/// use sluicegate_core::{MemoryStore, Policy};
/// use http::StatusCode;
///
/// let reports = Policy::token_bucket("reports", "100/min").on(&MemoryStore::new())?;
/// let limit = Limit::new(reports)
///     .key(HeaderKey::new("x-api-key")?)
///     .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED))
///     .cost(10)?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a limit does nothing until it is put into a layer"]
pub struct Limit {
    limiters: Limiters,
    pub(crate) key: Box<dyn KeyExtractor>,
    cost: u64,
    when_missing: WhenMissing,
    /// What decides per request whether, in which tier and at what cost the limit applies. Most limits have none.
    conditions: Option<Box<Conditions>>,
    pub(crate) refund_if: Option<RefundIf>,
    pub(crate) name: Option<Arc<str>>,
    /// The place of its first limiter among all of the layer; set when the layer is made.
    pub(crate) first_slot: usize,
}

/// Says by the head of a response whether a request gets its units back.
pub(crate) type RefundIf = Box<dyn Fn(&response::Parts) -> bool + Send + Sync>;

/// The limiters that a request may be asked of; it is asked of one of them.
pub(crate) enum Limiters {
    One(RateLimiter),
    Tiers(Tiers),
}

impl Limit {
    /// The limiter, with one unit per request from the bucket of its peer address.
    pub fn new(limiter: RateLimiter) -> Self {
        Self::of(Limiters::One(limiter))
    }

    pub(crate) fn of(limiters: Limiters) -> Self {
        Self {
            limiters,
            key: Box::new(PeerIp::new()),
            cost: 1,
            when_missing: WhenMissing::default(),
            conditions: None,
            refund_if: None,
            name: None,
            first_slot: 0,
        }
    }

    /// Whether what a request has spent may be given back by its response.
    pub(crate) fn gives_back(&self) -> bool {
        self.refund_if.is_some()
    }

    /// From now on what this limit gives back is exact.
    pub(crate) fn keep_accounts(&self) -> Result<(), ConfigError> {
        self.limiters().iter().try_for_each(RateLimiter::keep_accounts)
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
        let fail = |message: String| Err(ConfigError::new(ConfigErrorKind::Layer, message));
        for limiter in self.limiters() {
            let policy = limiter.policy();
            let name = policy.name();
            if cost == 0 {
                return fail(format!(
                    "a cost of 0 would let every request pass policy {name:?}: use at least 1"
                ));
            }
            if let Some(quota) = policy.quotas().iter().find(|quota| quota.rule().capacity() < cost) {
                return fail(format!(
                    "cost {cost} is above burst {} of {} in policy {name:?}: no request would ever pass",
                    quota.rule().capacity(),
                    quota.quota(),
                ));
            }
        }
        self.cost = cost;
        Ok(self)
    }

    /// Gives a request its units back when the head of its response is such that `refund` is true: a login that went
    /// well, an error that is the server's own. The fields of the response then show what is left after that, if the
    /// store answers at once, as memory does. An error of the service is no response, and gives nothing back.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::Limit;
    ///
    /// // Only failed logins count.
    /// let login = Policy::sliding_log("login", "5/min").on(&MemoryStore::new())?;
    /// let limit = Limit::new(login).refund_if(|head| head.status.is_success());
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn refund_if(mut self, refund: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.refund_if = Some(Box::new(refund));
        self
    }

    /// The name by which a [`Meter`](crate::Meter) finds this limit. Default: the name of the policy that was asked,
    /// which with tiers differs from request to request.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into());
        self
    }

    /// What happens to a request whose key is missing. Default: [`OnMissingKey::Share`]; but a request whose peer address
    /// is not known at all is refused with 500, and an error that says what to write is logged once. Such a server does
    /// not pass on who connects, and one bucket for all clients is hardly meant, unless it is chosen here.
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.when_missing.chosen = Some(action);
        self
    }

    /// What depends on the request, to be added to.
    pub(crate) fn conditions(&mut self) -> &mut Conditions {
        self.conditions.get_or_insert_default()
    }

    /// All limiters that a request may be asked of.
    pub(crate) fn limiters(&self) -> &[RateLimiter] {
        match &self.limiters {
            Limiters::One(limiter) => slice::from_ref(limiter),
            Limiters::Tiers(tiers) => tiers.limiters(),
        }
    }

    /// What the limit asks for this request, as far as that is known at once.
    #[inline]
    pub(crate) fn asking(&self, request: RequestView<'_>) -> Asking {
        match &self.conditions {
            None => Asking::For { limiter: 0, cost: self.cost },
            Some(conditions) => conditions.asking(self.cost, request),
        }
    }

    /// The action for a request without this key.
    pub(crate) fn missing(&self, missing: &MissingKey) -> OnMissingKey {
        let name =
            || self.limiters().first().map_or_else(String::new, |limiter| limiter.policy().name().to_owned());
        self.when_missing.action(missing, name)
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
            .field("limiters", &self.limiters())
            .field("cost", &self.cost)
            .field("on_missing_key", &self.when_missing.chosen)
            .finish_non_exhaustive()
    }
}
