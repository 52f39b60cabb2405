//! A check of one key: [`Check`].

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use super::handle::{FoundPolicy, RateLimiter};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::key::{AsKey, KeyRef};
use crate::policy::Quotas;
use crate::store::{Ask, DecisionFuture, Mode, PreparedPolicy};

/// A check of one key, which decides when it is awaited.
///
/// [`RateLimiter::check`] and [`RateLimiter::peek`] begin a check, with a cost of 1. Code that is not async decides with
/// [`now`](Self::now), and [`check_all`](super::check_all) decides several checks together.
///
/// ```
/// use sluicegate_core::{MemoryStore, Outcome, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let upload = Policy::gcra("upload", "100/h").on(&MemoryStore::new())?;
/// assert!(upload.check("ada").cost(80).await?.is_allowed());
/// assert_eq!(upload.check("ada").cost(30).await?.outcome(), Outcome::Denied);
/// assert_eq!(upload.check("ada").cost(101).await?.outcome(), Outcome::Impossible);
/// assert_eq!(upload.peek("ada").await?.remaining(), 20);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// An outage is [decided by the policy](crate::OnOutage). Any other [`StoreError`] is a mistake in a store.
///
/// # Cancel safety
/// A check that is dropped before it is awaited or [started](Self::start) asks nothing. After that, dropping the future
/// neither prevents the decision nor gives back its cost.
#[must_use = "a check decides when it is awaited or started"]
#[derive(Clone)]
pub struct Check<'a, K> {
    pub(super) limiter: &'a RateLimiter,
    /// The quotas of the key, in place of those of the policy.
    quotas: Option<&'a Quotas>,
    pub(super) key: K,
    pub(super) cost: u64,
    /// `None` means the mode of the policy.
    pub(super) mode: Option<Mode>,
}

/// No type implements it: a check has no decision yet.
#[diagnostic::on_unimplemented(
    message = "a check decides when it is awaited",
    label = "`.await?` is missing before this",
    note = "write `limiter.check(key).await?`, or without async, on a store in memory, `limiter.check(key).now()`"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait KeyOfDecision {}

impl<K> Check<'_, K> {
    #[doc(hidden)]
    pub fn is_allowed(&self) -> bool
    where
        K: KeyOfDecision,
    {
        false
    }
}

impl RateLimiter {
    /// Checks a key: decides a cost of 1 now, and spends it if allowed.
    ///
    /// Under a policy that waits, it reserves a turn: an allowed decision may then have a [`delay`](crate::Decision::delay).
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::gcra("login", "5/min").on(&MemoryStore::new())?;
    /// if !login.check("ada").await?.is_allowed() {
    ///     return Err("too many attempts".into());
    /// }
    /// // Without async, and with a key of two parts.
    /// let decision = login.check(("ada", "192.0.2.7")).now().expect("memory answers at once")?;
    /// assert_eq!(decision.remaining(), 4);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn check<K: AsKey>(&self, key: K) -> Check<'_, K> {
        Check { limiter: self, quotas: self.quotas.as_ref(), key, cost: 1, mode: None }
    }

    /// Looks at a key: shows its status and whether the cost would pass now, without waiting. It spends nothing.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let upload = Policy::gcra("upload", "100/h").on(&MemoryStore::new())?;
    /// let look = upload.peek("ada").cost(101).now().expect("memory answers at once")?;
    /// assert!(!look.is_allowed()); // more than the capacity
    /// assert_eq!(look.remaining(), 100); // and nothing was spent
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn peek<K: AsKey>(&self, key: K) -> Check<'_, K> {
        Check { limiter: self, quotas: self.quotas.as_ref(), key, cost: 1, mode: Some(Mode::Peek) }
    }
}

impl<'a, K: AsKey> Check<'a, K> {
    /// Sets the cost in units; 1 by default.
    ///
    /// The whole cost is spent, or none of it. A cost above the [capacity](crate::Decision::capacity) is
    /// [`Impossible`](crate::Outcome::Impossible), whatever the wait. A cost of 0 spends nothing and passes while there is no debt.
    #[inline]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Decides by quotas that come with the check, in place of the quotas of the policy, as
    /// [`RateLimiter::with_quotas`] does.
    ///
    /// For quotas that are found with each request, such as those of a customer's plan: it makes no limiter. For kept [`Quotas`],
    /// or clones of them, it costs a few loads.
    ///
    /// ```
    /// use sluicegate_core::policy::Quotas;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let api = Policy::gcra("api", "10/min").on(&MemoryStore::new())?;
    /// let plan: Quotas = "500/min burst 50".parse()?; // kept with the customer
    ///
    /// let decision = api.check("ada").under(&plan)?.cost(40).now().expect("memory answers at once")?;
    /// assert_eq!((decision.capacity(), decision.remaining()), (50, 10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::with_quotas`].
    #[inline]
    pub fn under(mut self, quotas: &'a Quotas) -> Result<Self, ConfigError> {
        self.limiter.check_quotas(quotas)?;
        self.quotas = Some(quotas);
        Ok(self)
    }

    /// Spends the available units, up to `most`; [`Decision::granted`] says how many it spent.
    ///
    /// The check is refused if no unit is left, or if it would have to wait, for example behind others in a queue. Use it for a batch that
    /// is cut to the remaining units: rows to send, pages to fetch, bytes to read.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let rows = Policy::gcra("rows", "100/s").on(&MemoryStore::new())?;
    /// let take = |most| rows.check("ada").up_to(most).now().expect("memory answers at once");
    /// assert_eq!(take(80)?.granted(), Some(80));
    /// assert!((20..25).contains(&take(80)?.granted().unwrap_or(80))); // the remaining units
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn up_to(self, most: u64) -> Self {
        self.cost(most).mode(Mode::Take)
    }

    /// Spends the cost now, or reserves the first turn within `longest`. First come, first served.
    ///
    /// An allowed decision says by its [`delay`](crate::Decision::delay) when the turn comes; [`Turn`](super::Turn) waits for it, and
    /// gives it back when it is dropped. The units are spent at once, whether the caller uses its turn or not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
    /// let calls = Policy::gcra("calls", "1/s burst 1").on(&store)?;
    /// let turn = || calls.check("api.example").reserve(Duration::from_secs(2)).now().expect("memory answers at once");
    ///
    /// assert_eq!(turn()?.delay(), Duration::ZERO);
    /// assert_eq!(turn()?.delay(), Duration::from_secs(1));
    /// assert_eq!(turn()?.delay(), Duration::from_secs(2));
    /// // The fourth would have to wait for three seconds. It can be requested again after one.
    /// assert_eq!(turn()?.retry_after(), Some(Duration::from_secs(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(self, longest: Duration) -> Self {
        self.mode(Mode::Reserve { longest })
    }

    /// Asks in this mode; `None` means the mode of the policy, which spends or waits. For middleware.
    #[inline]
    pub fn mode(mut self, mode: impl Into<Option<Mode>>) -> Self {
        self.mode = mode.into();
        self
    }

    /// Decides now, if the store answers without waiting, as a [`MemoryStore`](crate::MemoryStore) always does.
    ///
    /// # Errors
    /// The future, if the answer is still to come; the store was asked.
    #[inline]
    #[expect(clippy::result_large_err, reason = "the future is handed back, not reported")]
    pub fn now(self) -> Result<Result<Decision, StoreError>, DecisionFuture> {
        self.start().now()
    }

    /// Asks the store at once and returns the future of its answer.
    ///
    /// # Cancel safety
    /// Dropping the future neither prevents the decision nor gives back its cost.
    // Inlined always: a check without quotas then pays nothing for those that bring some.
    #[inline(always)]
    pub fn start(self) -> DecisionFuture {
        let Self { limiter, quotas, key, cost, mode } = self;
        match limiter.find_kept(quotas) {
            // By value: a reference would be one more load and store for each.
            Some(policy) => key.with_key(move |key| decide(limiter, policy, &key, cost, mode)),
            None => start_late(limiter, quotas, key, cost, mode),
        }
    }
}

impl<'a, K> Check<'a, K> {
    /// The limiter, with the quotas that come with the check.
    pub(super) fn to_limiter(&self) -> RateLimiter {
        self.limiter.under(self.quotas.cloned())
    }

    /// The policy that decides, if finding it takes a few loads.
    #[inline]
    pub(super) fn find_kept(&self) -> Option<&'a PreparedPolicy> {
        self.limiter.find_kept(self.quotas)
    }

    /// The policy that decides.
    pub(super) fn find(&self, key: KeyRef<'_>) -> FoundPolicy<'a> {
        self.limiter.find(self.quotas, Some(key))
    }

    /// The ask of this check, with an open policy and a borrowed key.
    pub(super) fn ask<'b>(&self, opened: &'b PreparedPolicy, key: KeyRef<'b>) -> Ask<'b> {
        Ask::new(opened, key, self.cost, self.mode.unwrap_or_else(|| opened.spends()))
    }
}

impl<K: AsKey> IntoFuture for Check<'_, K> {
    type Output = Result<Decision, StoreError>;
    type IntoFuture = DecisionFuture;

    #[inline]
    fn into_future(self) -> DecisionFuture {
        self.start()
    }
}

impl<K> fmt::Debug for Check<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Check");
        debug.field("limiter", &self.to_limiter()).field("cost", &self.cost).field("mode", &self.mode);
        debug.finish_non_exhaustive()
    }
}

/// Decides after the policy was replaced, or a key was given quotas.
#[inline(never)]
fn start_late(
    limiter: &RateLimiter,
    quotas: Option<&Quotas>,
    key: impl AsKey,
    cost: u64,
    mode: Option<Mode>,
) -> DecisionFuture {
    key.with_key(|key| decide(limiter, limiter.find(quotas, Some(key)).prepared(), &key, cost, mode))
}

/// Decides by the short way of the policy, if it has one and the check has no mode.
#[inline]
fn decide(
    limiter: &RateLimiter,
    policy: &PreparedPolicy,
    key: &KeyRef<'_>,
    cost: u64,
    mode: Option<Mode>,
) -> DecisionFuture {
    match policy.short_way() {
        Some(short) if mode.is_none() => {
            short.spend(key, cost, None, &move || decide_by_ask(limiter, policy, key, cost))
        }
        // Not in a function: copying words that were just written stalls on store forwarding.
        _ => limiter.decide(&[Ask::new(policy, *key, cost, mode.unwrap_or_else(|| policy.spends()))]),
    }
}

#[inline(never)]
fn decide_by_ask(
    limiter: &RateLimiter,
    policy: &PreparedPolicy,
    key: &KeyRef<'_>,
    cost: u64,
) -> DecisionFuture {
    limiter.decide(&[Ask::new(policy, *key, cost, policy.spends())])
}
