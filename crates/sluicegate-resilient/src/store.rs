//! The store with a fallback, and its decisions: [`Resilient`].
//!
//! 1. Reports about turns that the fallback gave go to the fallback.
//! 2. Reports for several parts are made one by one: a part that is down must not prevent the others from getting theirs.
//! 3. The store decides. Its failure counts for the breaker of the part that it names, and the fallback decides the call as a whole. What
//!    it spends is owed to each part, and parts that answer are charged at once.
//!
//! Reports are finished even if no caller waits for them, so that a client that
//! hangs up does not undo a charge.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Inherit;
use sluicegate_core::error::{ConfigError, StoreError, StoreErrorKind};
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{Ask, DecisionFuture, Mode, Notice, Place, ResilientStatus, StoreStatus};
use sluicegate_core::wrap::{OwnedAsk, Within, Wrap, ask_at_once};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::fallback::{FallbackShare, granted, is_its};
use super::parts::CallPermits;
use super::settle::Report;
use super::state::{ResilientState, is_owed_on};

/// Puts a breaker and a fallback around a store, so that an outage of the store is not an outage of the service.
///
/// While the store answers, it decides. When it fails, or is no longer asked after too many failures, each policy's
/// [`OnOutage`](sluicegate_core::OnOutage) applies: this process decides with its share of the quota ([`OnOutage::Local`](sluicegate_core::OnOutage::Local), the
/// default), requests pass uncounted, or they are refused. [`Decision::decided_by`](sluicegate_core::Decision::decided_by) says who has decided.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redis = sluicegate_core::MemoryStore::new();
/// use sluicegate_core::{OnOutage, Policy};
/// use sluicegate_resilient::Resilient;
///
/// let store = Resilient::builder(redis).replicas(4).build()?; // four instances of this service
/// let search = Policy::gcra("search", "100/min").on(&store)?; // 25 here while the store is out of reach
/// let payment = Policy::gcra("payment", "5/min").on_outage(OnOutage::Deny).on(&store)?;
/// assert!(search.check("ada").await?.is_allowed());
/// assert_eq!(store.status().fallback_decisions, 0);
/// # Ok(())
/// # }
/// ```
///
/// # What an outage admits
/// With a limit of L and N instances of `replicas(N)`, each falls back to `ceil(L/N)`: all together admit at most
/// `N * ceil(L/N)` per window on their own, in addition to the requests that the store admitted before. The fallback also counts the
/// requests that the store admits, so bringing the store down gives no client a fresh bucket on an instance that knows it. When the
/// store is back, the units that the fallback admitted are charged to it, as far as they still count; between the first answer and
/// that charge the store may admit too much. That charge is not repeated if it is not answered in time: it may
/// have arrived. A check or charge whose reply was lost on its way is counted by the store and by the fallback: such a key
/// has spent its units twice, never too few. Redis does not carry out what it gets to after the deadline.
///
/// A policy that [counts refused requests](sluicegate_core::policy::PolicyBuilder::count_rejected) counts them in an outage only with one replica.
/// With more, an instance refuses requests of clients within the limit, because its share is smaller. If such refusals
/// counted, these clients would be refused until the outage is over.
///
/// # When a part of the store is down
/// A store may have [parts](sluicegate_core::store::Parts) that fail on their own, such as the nodes of a Cluster; each has a breaker.
/// The fallback decides each request of which a limit lives in a part that is down. The parts that answer are charged at once with
/// the units that it admits.
///
/// # When a process ends
/// [`close`](Self::close) charges all debts before the process ends. A process that ends without it, or is killed during an outage,
/// loses its debts and its warm fallback: the next process does not know them, and admits `ceil(L/N)` anew.
///
/// # What is not survived
/// [`RateLimiter::reset`](sluicegate_core::RateLimiter::reset) reports an outage as an error, because a key must not come back when the
/// store does. A refund during an outage reduces the fallback's debt; units that the store counted before stay
/// spent. A turn from the store that is given up during an outage is lost; it is spent at its time.
///
/// # Example of an outage
/// Four instances share a limit of eight. On its own each has two, and admitted units are recorded
/// as a debt:
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::error::StoreErrorKind;
/// use sluicegate_core::limiter::Inherit;
/// use sluicegate_resilient::BreakerState;
/// use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture};
/// use sluicegate_core::wrap::{Within, Wrap};
/// use sluicegate_core::{ConfigError, MemoryStore, Policy, Store, StoreError};
/// use sluicegate_resilient::Resilient;
///
/// /// A store that cannot be reached.
/// struct Gone(Within);
///
/// impl Wrap for Gone {
///     type Own = ();
///
///     fn within(&self) -> &Within {
///         &self.0
///     }
///
///     fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
///         Ok(())
///     }
///
///     fn ask(&self, _: &[Ask<'_>]) -> DecisionFuture {
///         DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::Unavailable).unsent()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gone: Arc<dyn Store> = Arc::new(Gone(Within::new(MemoryStore::new())));
/// let store = Resilient::builder(gone).replicas(4).build()?;
/// let search = Policy::gcra("search", "8/h").on(&store)?;
///
/// let mut passed = 0;
/// for _ in 0..6 {
///     let decision = search.check("ada").await?;
///     assert_eq!(decision.decided_by(), DecidedBy::Fallback);
///     passed += u32::from(decision.is_allowed());
/// }
/// assert_eq!(passed, 2);
/// let status = store.status();
/// assert_eq!(status.breaker, BreakerState::Open); // after five failures in a row
/// assert_eq!((status.fallback_decisions, status.debts), (6, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Resilient(pub(super) Arc<ResilientStore>);

/// The part that limiters hold; calls that have to wait keep a reference to the state.
pub(super) struct ResilientStore(pub(super) Arc<ResilientState>);

impl Resilient {
    /// The current state, for a gauge, a health page, or an alert. Every change of the breaker is also logged, by
    /// `tracing`.
    ///
    /// It is cheap enough for each scrape: it takes one short lock and reads a few counters.
    ///
    /// ```
    /// use sluicegate_resilient::BreakerState;
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_resilient::Resilient;
    ///
    /// let store = Resilient::new(MemoryStore::new());
    /// let status = store.status();
    /// assert_eq!(status.breaker, BreakerState::Closed);
    /// assert!(status.in_fallback.is_zero());
    /// ```
    pub fn status(&self) -> ResilientStatus {
        self.0.0.status()
    }

    /// Charges the units admitted without the store to it, at the end of the process: after the last request
    /// was answered, and before the runtime ends.
    ///
    /// It ignores the breaker and asks the store up to ten times a second while the store is down. It ends when no debt is
    /// left, or when the time `within` is over, and waits for charges and refunds in progress. The store can be used
    /// afterwards, and closed again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redis = sluicegate_core::MemoryStore::new();
    /// # async fn serve() {}
    /// use std::time::Duration;
    /// use sluicegate_resilient::Resilient;
    ///
    /// let store = Resilient::new(redis);
    /// serve().await; // for example `axum::serve(..).with_graceful_shutdown(..)`
    /// if let Err(unsettled) = store.close(Duration::from_secs(5)).await {
    ///     eprintln!("{unsettled}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsettled`] when debts are left at the end. They are lost with the process: their keys may spend the units again.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its timer.
    ///
    /// # Cancel safety
    /// A call that is in progress when this is dropped may or may not have been charged, and is not repeated. All other debts are
    /// still owed.
    pub async fn close(&self, within: Duration) -> Result<(), Unsettled> {
        let now = Instant::now();
        // A time that is too long for the clock is cut to a day.
        let until = now.checked_add(within).unwrap_or(now + Duration::from_secs(86_400));
        match self.0.0.settle_until(until).await {
            0 => Ok(()),
            debts => Err(Unsettled { debts }),
        }
    }
}

impl Wrap for ResilientStore {
    type Own = FallbackShare;

    fn within(&self) -> &Within<FallbackShare> {
        &self.0.within
    }

    fn prepare(
        &self,
        policy: &Arc<Policy>,
        replaces: Option<(&FallbackShare, Inherit)>,
    ) -> Result<FallbackShare, ConfigError> {
        self.0.fallback.prepare(policy, replaces)
    }

    fn own_place(&self) -> Option<Place> {
        Some(Place::Resilient)
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        match asks.iter().find_map(|ask| self.0.within.own(ask.policy()).err()) {
            Some(foreign) => DecisionFuture::ready(Err(foreign)),
            None => self.0.decide(asks),
        }
    }

    fn hear(&self, notice: &Notice<'_>) {
        match *notice {
            Notice::Listener(listener) => self.0.parts.listeners.add(Arc::clone(listener)),
            Notice::Replaced { old, new, inherit } => {
                self.0.fallback.debts.hand_over(old, new, inherit);
                if let Ok(share) = self.0.within.own(new) {
                    share.begin(new);
                }
            }
            _ => (),
        }
    }

    fn report(&self, status: &mut StoreStatus) {
        status.resilient = Some(self.0.status());
        if status.memory.is_none() {
            let StoreStatus { memory, quotas, .. } = self.0.fallback.status();
            (status.memory, status.quotas) = (memory, quotas);
        }
    }
}

impl ResilientState {
    fn decide(self: &Arc<Self>, asks: &[Ask<'_>]) -> DecisionFuture {
        // Reports about a turn go to the store that gave it.
        let is_own_turn = |ask: &Ask<'_>| ask.mode() == Mode::Return && is_its(ask);
        if !asks.is_empty() && asks.iter().all(is_own_turn) {
            let reason = StoreError::new(StoreErrorKind::Unavailable);
            return DecisionFuture::ready(self.decide_alone(asks, reason));
        }
        let parts_of = |ask: &Ask<'_>| self.within.parts(std::slice::from_ref(ask));
        let is_report = |ask: &Ask<'_>| !ask.mode().asks() && ask.mode() != Mode::Return;
        if asks.iter().all(is_report) && asks.windows(2).any(|two| parts_of(&two[0]) != parts_of(&two[1])) {
            return self.report_each(asks);
        }
        let (permits, away) = self.parts.permits(self.within.parts(asks));
        if away == 0 {
            return self.ask_store(asks, permits);
        }
        drop(permits);
        let reason = "it has failed too often, and is left alone for a moment";
        let reason = StoreError::with_source(StoreErrorKind::Unavailable, reason);
        DecisionFuture::ready(self.decide_in_outage(asks, away, reason))
    }

    /// Makes each report on its own. It waits for all answers, also after an error, which says nothing about the other reports.
    fn report_each(self: &Arc<Self>, asks: &[Ask<'_>]) -> DecisionFuture {
        let answers: Vec<_> = (0_u8..).zip(asks).map(|(index, ask)| (index, self.decide(&[*ask]))).collect();
        DecisionFuture::polled(async {
            let parts = ask_at_once(answers).await?;
            Decision::joined(parts.into_iter().map(|(index, decision)| (decision, [index])))
        })
    }

    /// Asks the store. The outcome of a report is noted, with the store or without, even if its caller has gone.
    fn ask_store(self: &Arc<Self>, asks: &[Ask<'_>], permits: CallPermits) -> DecisionFuture {
        // The store does not know the spends of the fallback: the debt is deducted when it has answered.
        let known = asks.iter().map(|ask| match ask.mode() {
            _ if is_its(ask) => ask.plainly(Mode::Refund).with_costs(&[0]),
            Mode::Charge => ask.repeated(),
            _ => *ask,
        });
        let answer = self.within.decide(&known.collect::<SmallVec<[Ask<'_>; 4]>>());
        let reports = asks.iter().any(|ask| !ask.mode().asks());
        let asks: SmallVec<[OwnedAsk; 1]> = asks.iter().map(OwnedAsk::new).collect();
        let state = Arc::clone(self);
        let call = async move {
            let result = state.deadline.keep(answer).await;
            let asks: SmallVec<[Ask<'_>; 4]> = asks.iter().map(OwnedAsk::ask).collect();
            state.after_store(&asks, permits, result)
        };
        if !reports {
            return DecisionFuture::polled(call);
        }
        let report = Report::begin(Arc::clone(self));
        DecisionFuture::begun_here(async move {
            let _report = report;
            call.await
        })
    }

    /// The answer derived from the store's.
    fn after_store(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        permits: CallPermits,
        result: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        match result {
            Ok(decision) => {
                permits.succeeded();
                self.fallback.keep_warm(asks, &decision, &self.within);
                if self.fallback.debts.count() > 0 {
                    self.settle();
                }
                Ok(decision)
            }
            Err(error) if error.may_succeed_later() => {
                self.counts.failed(&error);
                let failed = permits.failed(&error);
                self.decide_in_outage(asks, failed, error)
            }
            // A mistake in the program says nothing about the store.
            Err(error) => Err(error),
        }
    }

    /// Decides a request that needs parts which are `away`, for the reason given. Its other parts learn at once what it spends.
    fn decide_in_outage(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        away: u64,
        reason: StoreError,
    ) -> Result<Decision, StoreError> {
        self.counts.decided_alone();
        let decision = self.decide_alone(asks, reason)?;
        if asks.iter().any(|ask| self.within.parts(&[*ask]) & away == 0) && self.fallback.debts.count() > 0 {
            self.settle();
        }
        Ok(decision)
    }

    /// Decides without the store, which could not answer for the reason given.
    fn decide_alone(&self, asks: &[Ask<'_>], reason: StoreError) -> Result<Decision, StoreError> {
        let outage = || (self.clock.now_us(), self.parts.longest_pause());
        // What arrives after its deadline is not carried out, unless units are given back.
        let expires = |ask: &Ask<'_>| ask.mode().asks() || ask.mode() == Mode::Charge;
        let may_arrive = !asks.iter().all(expires) && !is_owed_on(&reason);
        let decision = self.fallback.decide(asks, reason, outage)?;
        if decision.is_allowed() {
            self.fallback.note_spending(granted(asks, &decision), may_arrive, &self.within);
        }
        Ok(decision)
    }
}

/// Debts of a process that its store does not know of. See [`Resilient::close`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    debts: usize,
}

impl Unsettled {
    /// The number of debts: one for each key and policy. It includes debts whose charge was not answered.
    pub fn debts(&self) -> usize {
        self.debts
    }
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { debts } = self;
        let (noun, verb) = if *debts == 1 { ("debt", "was") } else { ("debts", "were") };
        write!(f, "{debts} {noun} {verb} not charged to the store: give `close` more time")
    }
}

impl std::error::Error for Unsettled {}

sluicegate_core::store_handle!(Resilient, status);
