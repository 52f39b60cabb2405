//! Calls about keys: a check ([`Check`]), another change of a key ([`Change`]), suspensions by hand ([`Suspensions`]), and checks and changes of
//! several limiters in one call, in which all spend or none does.
//!
//! One call is one decision of the store, so nothing can come between the limiters, and a refusal
//! by one spends nothing from the others. On a Redis Cluster the limits of one request may live on
//! several nodes; the Redis store documents the cost of this.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::handle::{FoundPolicy, RateLimiter};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::few::few;
use crate::key::{AsKey, Key, KeyRef};
use crate::policy::{Policy, PolicyMode, Quotas};
use crate::receipt::Receipt;
use crate::store::{Ask, DecisionFuture, Mode, PreparedPolicy, ShortAnswer};
use crate::suspension::{Strikes, change, finished, strikes};

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

impl RateLimiter {
    /// Spends from the bucket of a key if the policy enforces, and one look at the key decides. Otherwise nothing has been spent, there is no
    /// answer, and a [`check`](Self::check) decides. For middleware, which needs no [`Decision`] for most requests.
    #[inline]
    pub fn spend_short<K: AsKey>(&self, key: K, cost: u64) -> Option<ShortAnswer> {
        key.with_key(|key| match self.find_kept(self.quotas.as_ref()) {
            Some(policy) => spend_enforced(policy, &key, cost),
            None => self.spend_late(&key, cost),
        })
    }

    /// As `spend_short`, after the policy was replaced, or a key was given quotas: under those of a key there is no short answer.
    #[inline(never)]
    fn spend_late(&self, key: &KeyRef<'_>, cost: u64) -> Option<ShortAnswer> {
        match self.find(self.quotas.as_ref(), Some(*key)) {
            FoundPolicy::UnderQuotas(_) => None,
            found => spend_enforced(found.prepared(), key, cost),
        }
    }
}

#[inline]
fn spend_enforced(policy: &PreparedPolicy, key: &KeyRef<'_>, cost: u64) -> Option<ShortAnswer> {
    let short = policy.short_way().filter(|_| policy.policy().mode() == PolicyMode::Enforce)?;
    short.spend(key, cost)
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
        Some(short) if mode.is_none() => match short.spend(key, cost) {
            Some(answer) => DecisionFuture::ready(Ok(answer.into())),
            None => decide_by_ask(limiter, policy, key, cost),
        },
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

/// A charge, a refund or a reset of one key, made when it is awaited.
///
/// [`RateLimiter::charge`], [`RateLimiter::refund`] and [`RateLimiter::reset`] begin a change, and
/// [`change_all`](super::change_all) makes several in one call. The decision shows the status of the key afterwards.
///
/// # Errors
/// When the store gives no answer, whatever the policy says about outages: it is then unknown whether the change was made
/// ([`StoreError::may_have_spent`]). A `Resilient` store records charges and sends them later.
///
/// # Cancel safety
/// A change that is dropped before it is awaited or [started](Self::start) is not made. After that, the store is asked even if the
/// future is dropped.
#[must_use = "a change is made when it is awaited or started"]
pub struct Change<'a, K> {
    pub(super) limiter: &'a RateLimiter,
    pub(super) key: K,
    pub(super) cost: u64,
    pub(super) mode: Mode,
    pub(super) receipt: Option<&'a mut Receipt>,
}

impl RateLimiter {
    /// Spends units whether they fit or not; the excess is a debt that later requests wait for.
    ///
    /// A debt has a ceiling, ten bursts or ten limits, whichever is more, or the ceiling of
    /// [`PolicyBuilder::debt_up_to`](crate::policy::PolicyBuilder::debt_up_to): units above it are forgotten, so that one charge cannot
    /// lock a key out for years. In a fixed window or a period of a calendar, a debt ends with it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
    /// let tokens = Policy::gcra("tokens", "5/min").on(&store)?;
    /// tokens.charge("ada", 8).now().expect("memory answers at once")?; // three more than are left
    ///
    /// let denied = tokens.check("ada").now().expect("memory answers at once")?;
    /// assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(Duration::from_secs(48))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn charge<K: AsKey>(&self, key: K, cost: u64) -> Change<'_, K> {
        Change { limiter: self, key, cost, mode: Mode::Charge, receipt: None }
    }

    /// Gives units back: units of a receipt ([`Change::of`]), or units with an unknown time of spending.
    ///
    /// Without a receipt they count as spent just now. Units that have drained since are then given back a second time, so use it
    /// only for units that were spent a moment ago, or for a refund by hand to a customer. A key never gets better than at rest.
    pub fn refund<K: AsKey>(&self, key: K, cost: u64) -> Change<'_, K> {
        Change { limiter: self, key, cost, mode: Mode::Refund, receipt: None }
    }

    /// Forgets a key: it has its whole burst again, or the units that an unknown key
    /// [starts](crate::Quota::starting_with) with.
    ///
    /// Reserved turns still come at their times. A [suspension](crate::suspension), and the refusals that count towards
    /// one, stay: a [release](super::Suspensions::release) ends them.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let login = Policy::sliding_log("login", "5/h").on(&MemoryStore::new())?;
    /// login.check("ada").cost(5).now().expect("memory answers at once")?;
    /// login.reset("ada").now().expect("memory answers at once")?; // support has talked to her
    /// assert_eq!(login.peek("ada").now().expect("memory answers at once")?.remaining(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset<K: AsKey>(&self, key: K) -> Change<'_, K> {
        Change { limiter: self, key, cost: 0, mode: Mode::Reset, receipt: None }
    }
}

impl<'a, K> Change<'a, K> {
    /// Gives back units that a decision has spent ([`Decision::take_receipt`]), except those that no longer count: a unit of a window
    /// that has ended, or one that has leaked out of its bucket, is gone. Giving it back would admit more than the policy
    /// allows. The receipt loses the units when the change is made.
    ///
    /// Under a policy with [`refunds`](crate::policy::PolicyBuilder::refunds) all units that have not drained come back, in the
    /// order of their arrival. Without it, all units that have leaked since count against the refund, which may give back
    /// too little but never too much.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mail = Policy::gcra("mail", "3/h").on(&MemoryStore::new())?;
    /// let mut receipt = mail.check("ada").cost(2).await?.take_receipt(0).ok_or("it has spent")?;
    /// mail.refund("ada", 1).of(&mut receipt).await?;
    /// assert_eq!((receipt.cost(), mail.peek("ada").await?.remaining()), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(mut self, receipt: &'a mut Receipt) -> Self {
        self.cost = self.cost.min(receipt.cost());
        self.receipt = Some(receipt);
        self
    }

    pub(super) fn ask<'b>(&'b self, asked: Ask<'b>) -> Ask<'b> {
        match &self.receipt {
            Some(receipt) => asked.of(receipt),
            None => asked,
        }
    }

    /// Deducts the units that were given back from the receipt.
    pub(super) fn settle(self) {
        if let (Some(receipt), Mode::Refund) = (self.receipt, self.mode) {
            receipt.spend(self.cost);
        }
    }
}

impl<K: AsKey> Change<'_, K> {
    /// Makes the change now, if the store answers without waiting, as a [`MemoryStore`](crate::MemoryStore) always does.
    ///
    /// # Errors
    /// The future, if the answer is still to come; the store was asked.
    #[expect(clippy::result_large_err, reason = "the future is handed back, not reported")]
    pub fn now(self) -> Result<Result<Decision, StoreError>, DecisionFuture> {
        self.start().now()
    }

    /// Asks the store at once and returns the future of its answer.
    ///
    /// # Cancel safety
    /// The change is made, whether the future is polled or dropped.
    pub fn start(self) -> DecisionFuture {
        let answer = self.key.with_key(|key| {
            let found = self.limiter.find(self.limiter.quotas.as_ref(), Some(key));
            self.limiter.decide(&[self.ask(Ask::new(found.prepared(), key, self.cost, self.mode))])
        });
        self.settle();
        answer
    }
}

impl<K: AsKey> IntoFuture for Change<'_, K> {
    type Output = Result<Decision, StoreError>;
    type IntoFuture = DecisionFuture;

    fn into_future(self) -> DecisionFuture {
        self.start()
    }
}

impl<K> fmt::Debug for Change<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Change");
        debug.field("limiter", self.limiter).field("cost", &self.cost).field("mode", &self.mode);
        debug.finish_non_exhaustive()
    }
}

/// Lists the policies in force of these limiters, in order, for code that shows a decision. The list of a single limiter is shared, and
/// allocates nothing.
///
/// ```
/// use sluicegate_core::limiter::policies;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let login = Policy::gcra("login", "5/min").on(&MemoryStore::new())?;
/// assert_eq!(policies([&login])[0].name(), "login");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[inline]
pub fn policies<'a>(limiters: impl IntoIterator<Item = &'a RateLimiter>) -> Arc<[Arc<Policy>]> {
    let mut limiters = limiters.into_iter();
    match (limiters.next(), limiters.next()) {
        (Some(only), None) => {
            let found = only.find(only.quotas.as_ref(), None);
            Arc::clone(found.prepared().shared_numbers()) as _
        }
        (first, second) => first.into_iter().chain(second).chain(limiters).map(RateLimiter::policy).collect(),
    }
}

/// Decides checks of several limiters together, each with its own key and cost: all spend, or none does.
///
/// The limiters must be on the same store. Checks of one key by one limiter need the sum of their costs. After
/// [`retry_after`](crate::Decision::retry_after) all of them pass, if nobody else spends.
///
/// ```
/// use sluicegate_core::limiter::check_all;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// let by_user = Policy::gcra("user", "100/min").on(&store)?;
/// let by_address = Policy::gcra("address", "2/min").on(&store)?;
///
/// let check = || {
///     let checks = [by_user.check("ada").cost(10), by_address.check("192.0.2.7")];
///     check_all(checks).now().expect("memory answers at once")
/// };
/// assert!(check()?.is_allowed() && check()?.is_allowed());
/// let denied = check()?;
/// assert_eq!(denied.deciding().policy_index(), 1); // the address refused
/// assert_eq!(denied.quotas()[0].remaining(), 80); // so nothing was spent for the user a third time
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NothingAsked`](StoreErrorKind::NothingAsked) without checks, [`ForeignPolicy`](StoreErrorKind::ForeignPolicy) when their limiters
/// are not on one store, and [`TooManyQuotas`](StoreErrorKind::TooManyQuotas) when they have more than 16 quotas together. An outage
/// is [decided by the policies](crate::OnOutage).
///
/// # Cancel safety
/// The store is asked when this is called. Dropping the future neither prevents the decision nor gives back its cost.
pub fn check_all<'a, K: AsKey + 'a>(checks: impl IntoIterator<Item = Check<'a, K>>) -> DecisionFuture {
    let mut checks = checks.into_iter();
    let Some(first) = checks.next() else {
        return DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::NothingAsked)));
    };
    // Almost all calls have one or two limiters, which need no lists.
    let Some(second) = checks.next() else { return first.start() };
    let third = checks.next();
    if third.is_none()
        && let (Some(opened), Some(other)) = (first.find_kept(), second.find_kept())
        && Arc::ptr_eq(first.limiter.store(), second.limiter.store())
    {
        return first.key.with_key(|key| {
            second.key.with_key(|other_key| {
                first.limiter.decide(&[first.ask(opened, key), second.ask(other, other_key)])
            })
        });
    }
    let checks: SmallVec<[_; 4]> = few([first, second].into_iter().chain(third).chain(checks));
    let checks: SmallVec<[_; 4]> = few(checks.iter().map(|check| {
        let (found, key) = check.key.with_key(|key| (check.find(key), key.to_key()));
        (found, key, check)
    }));
    on_one_store(&checks, |check| check.limiter, |opened, key, check| check.ask(opened, key))
}

/// Makes charges and refunds under several limiters of one store in one call.
///
/// For finished work: a cost above the estimate is charged under one limiter and a cost below it given back under another, in one
/// round trip. Receipts lose their units when this is called.
///
/// # Errors
/// As [`Change`], and as [`check_all`] for limiters of different stores.
///
/// # Cancel safety
/// The store is asked when this is called, whether the future is polled or not.
pub fn change_all<'a, K: AsKey + 'a>(changes: impl IntoIterator<Item = Change<'a, K>>) -> DecisionFuture {
    let changes = changes.into_iter();
    let changes: SmallVec<[_; 4]> = few(changes.map(|change| {
        let (found, key) = change
            .key
            .with_key(|key| (change.limiter.find(change.limiter.quotas.as_ref(), Some(key)), key.to_key()));
        (found, key, change)
    }));
    let answer = on_one_store(
        &changes,
        |change| change.limiter,
        |opened, key, change| change.ask(Ask::new(opened, key, change.cost, change.mode)),
    );
    changes.into_iter().for_each(|(.., change)| change.settle());
    answer
}

/// Gives back the spends of these receipts, or their [turns](Mode::Return).
#[cfg(feature = "tokio")]
pub(super) fn report<'a>(
    spends: impl IntoIterator<Item = (&'a RateLimiter, &'a Key, &'a Receipt)>,
    mode: Mode,
) -> DecisionFuture {
    let spends = spends.into_iter();
    let spends: SmallVec<[_; 2]> = few(spends.map(|(limiter, key, receipt)| {
        (limiter.find(limiter.quotas.as_ref(), Some(key.as_ref())), key.clone(), (limiter, receipt))
    }));
    on_one_store(
        &spends,
        |(limiter, _)| limiter,
        |opened, key, (_, receipt)| Ask::new(opened, key, receipt.cost(), mode).of(receipt),
    )
}

/// Decides all of these together, each with its policy and key, if their limiters are on one store.
fn on_one_store<T>(
    all: &[(FoundPolicy<'_>, Key, T)],
    limiter: impl Fn(&T) -> &RateLimiter,
    ask: impl for<'b> Fn(&'b PreparedPolicy, KeyRef<'b>, &'b T) -> Ask<'b>,
) -> DecisionFuture {
    let failed = |kind| DecisionFuture::ready(Err(StoreError::new(kind)));
    let mut limiters = all.iter().map(|(.., of)| limiter(of));
    let Some(first) = limiters.next() else { return failed(StoreErrorKind::NothingAsked) };
    if !limiters.all(|other| Arc::ptr_eq(other.store(), first.store())) {
        return failed(StoreErrorKind::ForeignPolicy);
    }
    let asks = all.iter().map(|(found, key, of)| ask(found.prepared(), key.as_ref(), of));
    first.decide(&few::<[_; 4]>(asks))
}

/// The suspensions of a limiter's keys, for changes by hand.
///
/// The policy has to be enforced, and to have a [suspension](crate::policy::PolicyBuilder::suspend) or take part in suspensions
/// [everywhere](crate::policy::PolicyBuilder::everywhere).
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, Outcome, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let login = Policy::gcra("login", "5/min").suspend(100, "10min", "30min").on(MemoryStore::new())?;
/// let by_ada = login.suspensions().by("ada"); // events and the audit log name Ada
/// by_ada.suspend("eve", Duration::from_secs(600)).await?;
/// assert_eq!(login.check("eve").await?.outcome(), Outcome::Suspended);
/// by_ada.release("eve").await?;
/// assert!(login.check("eve").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Suspensions<'a> {
    limiter: &'a RateLimiter,
    operator: Option<&'a str>,
}

impl RateLimiter {
    /// The suspensions of this limiter's keys.
    pub fn suspensions(&self) -> Suspensions<'_> {
        Suspensions { limiter: self, operator: None }
    }
}

impl<'a> Suspensions<'a> {
    /// Names the operator who makes the changes, for logs, events and pages.
    #[must_use]
    pub fn by(self, operator: &'a str) -> Self {
        Self { operator: Some(operator), ..self }
    }

    /// Suspends a key for this time from now on, whatever its earlier refusals and suspensions; ten years at most. The decision
    /// is the result of a [`peek`](RateLimiter::peek) afterwards.
    ///
    /// It does not make the next suspension longer. A time of zero ends a suspension and forgets
    /// nothing else.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSuspension`](crate::error::StoreErrorKind::NoSuspension) when the policy suspends no key. When the
    /// store gives no answer, the key may be suspended or not.
    ///
    /// # Cancel safety
    /// A started call is completed, if it was started on a tokio runtime (feature `tokio`).
    pub fn suspend(&self, key: impl AsKey, lasts: Duration) -> DecisionFuture {
        self.change(key, Some(lasts))
    }

    /// Ends the suspension of a key, and forgets its refusals and earlier suspensions, as if it had never been refused. The
    /// decision is the result of a [`peek`](RateLimiter::peek) afterwards.
    ///
    /// Units that the key has spent stay spent; [`reset`](RateLimiter::reset) forgets them and keeps a suspension. A key that
    /// is suspended [everywhere](crate::policy::PolicyBuilder::everywhere) is released everywhere.
    ///
    /// # Errors
    /// As [`suspend`](Self::suspend).
    ///
    /// # Cancel safety
    /// As [`suspend`](Self::suspend).
    pub fn release(&self, key: impl AsKey) -> DecisionFuture {
        self.change(key, None)
    }

    /// The refusals of a key that count towards its next suspension. `None` if the policy suspends no key by itself, or is not enforced.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::gcra("login", "5/min").suspend(100, "10min", "30min").on(MemoryStore::new())?;
    /// for _ in 0..36 {
    ///     login.check("ada").await?;
    /// }
    /// let strikes = login.suspensions().strikes("ada").await?.ok_or("it suspends keys")?;
    /// assert_eq!((strikes.counted, strikes.after, strikes.suspensions), (31, 100, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store gives no answer.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn strikes(&self, key: impl AsKey) -> Result<Option<Strikes>, StoreError> {
        let (policy, key) = (self.policy(), key.with_key(|key| key.to_key()));
        strikes(self.limiter.store(), &policy, &key).await
    }

    fn policy(&self) -> PreparedPolicy {
        self.limiter.find(self.limiter.quotas.as_ref(), None).prepared().clone()
    }

    fn change(&self, key: impl AsKey, lasts: Option<Duration>) -> DecisionFuture {
        let (limiter, key) = (self.limiter.clone(), key.with_key(|key| key.to_key()));
        let (policy, operator) = (self.policy(), self.operator.map(str::to_owned));
        let is_here = limiter.store().always_answers();
        let work = async move {
            change(limiter.store(), &policy, &key, (lasts, operator.as_deref())).await?;
            limiter.peek(&key).await
        };
        finished(is_here, Box::pin(work))
    }
}
