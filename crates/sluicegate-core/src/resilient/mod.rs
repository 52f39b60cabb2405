//! A store around a store, for when that one fails: [`Resilient`].

mod breaker;
mod builder;
mod close;
mod debts;
mod fallback;
mod leave;
mod settings;
mod settle;
mod status;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use self::breaker::Breaker;
pub use self::breaker::BreakerState;
pub use self::builder::ResilientBuilder;
pub use self::close::Unsettled;
use self::debts::Debts;
use self::leave::Leave;
pub use self::settings::BreakerSettings;
use self::status::Counts;
pub use self::status::ResilientStatus;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::key::Key;
use crate::limiter::Limiters;
use crate::policy::{OnOutage, Policy};
use crate::receipt::Receipt;
use crate::store::{Ask, DecisionFuture, Inherit, Mode, PreparedPolicy, Store};

/// Puts a breaker and a fallback around a store, so that its outage is not one of the service.
///
/// While the store answers, it decides. When it fails, or is left alone after it has failed too often, each policy's
/// [`OnOutage`] says what happens: this process decides with its share of the quota ([`OnOutage::Local`], the
/// default), requests pass uncounted, or they are refused. [`Decision::decided_by`] tells who has decided.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redis = sluicegate_core::MemoryStore::new();
/// use sluicegate_core::{OnOutage, Policy, Resilient};
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
/// `N * ceil(L/N)` per window on their own, besides what the store admitted before. The fallback is kept warm by what the
/// store admits, so that toppling the store hands nobody a fresh bucket on an instance that knows them. When the store
/// is back, what the fallback admitted is charged to it, as far as it still counts; between the first answer and that
/// charge the store may admit what it does not know of yet. A charge that is not answered in time may have arrived, and is
/// not repeated. A call that was not answered in time may have been counted by the store and by the fallback: such a key
/// has spent a unit too many, never one too few.
///
/// # When a process ends
/// [`close`](Self::close) charges what is owed before the process ends. Dropped without it, or killed during an outage, a process
/// takes its debts and its warm fallback along: the one that follows knows of neither, and admits `ceil(L/N)` anew.
///
/// # What is not survived
/// [`RateLimiter::reset`](crate::RateLimiter::reset) reports an outage as an error, for a key must not come back when the
/// store does. A refund during an outage strikes off what the fallback has noted; what the store counted before stays
/// spent. A turn that the store gave and that is given up during an outage is lost; it is spent at its time.
#[derive(Clone)]
pub struct Resilient(Arc<Front>);

/// What limiters hold: calls that have to wait take a share of the state along.
struct Front(Arc<State>);

struct State {
    limiters: Limiters,
    store: Arc<dyn Store>,
    fallback: Arc<dyn Store>,
    replicas: u64,
    deadline: Option<Duration>,
    settings: BreakerSettings,
    /// One per part of the store.
    breakers: Box<[Breaker]>,
    clock: Box<dyn Clock>,
    counts: Counts,
    debts: Debts,
    is_settling: AtomicBool,
    /// Debts in the hands of who settles.
    held: AtomicUsize,
    /// Charges and refunds that go on although nobody may wait for them.
    reports: AtomicUsize,
    settles_from_us: AtomicU64,
}

/// As many parts as a store may name: the bits of [`Store::parts`].
const PARTS: usize = 64;

/// The parts that these bits name.
fn each(parts: u64) -> impl Iterator<Item = usize> {
    (0..PARTS).filter(move |part| parts >> part & 1 == 1)
}

/// A policy, opened on the store and, for its share, on the fallback.
struct Prepared {
    store: PreparedPolicy,
    share: Option<PreparedPolicy>,
}

impl Resilient {
    /// A store around `store`, with the defaults: see [`ResilientBuilder`].
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Self {
        ResilientBuilder::new(store.into()).into_store()
    }

    /// Begins a store around `store` with other settings.
    pub fn builder(store: impl Into<Arc<dyn Store>>) -> ResilientBuilder {
        ResilientBuilder::new(store.into())
    }

    /// How it is doing: for a gauge, a health page, an alarm. Every change of the breaker is also a line in the log, by
    /// `tracing`.
    pub fn status(&self) -> ResilientStatus {
        let state = &self.0.0;
        let worst = state.breakers.iter().map(Breaker::state).max().unwrap_or(BreakerState::Closed);
        state.counts.status(worst, state.debts.count(), state.now_us())
    }
}

impl fmt::Debug for Resilient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resilient").field(&self.status()).finish()
    }
}

impl From<&Resilient> for Arc<dyn Store> {
    fn from(store: &Resilient) -> Self {
        Arc::clone(&store.0) as Self
    }
}

impl From<Resilient> for Arc<dyn Store> {
    fn from(store: Resilient) -> Self {
        store.0
    }
}

impl Store for Front {
    fn limiters(&self) -> &Limiters {
        &self.0.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let state = &self.0;
        let (replaced, inherit) = replaces.unzip();
        let old = replaced.map(PreparedPolicy::replaced::<Prepared>).transpose()?;
        let old = old.as_deref().zip(inherit);
        let share = match policy.on_outage() {
            OnOutage::Local => Some(policy.share(policy.name(), 1, state.replicas)?),
            OnOutage::Allow | OnOutage::Deny => None,
        };
        // The store is the last to be asked, for it may be one that acts on it: debts go to the new policy, as below. The
        // fallback leaves everything where it was if what it prepared is dropped.
        let old_share = old.and_then(|(old, how)| Some((old.share.as_ref()?, how)));
        let share = share.map(|share| state.fallback.open(Arc::new(share), old_share)).transpose()?;
        let store = state.store.open(Arc::clone(&policy), old.map(|(old, how)| (&old.store, how)))?;
        let opened = PreparedPolicy::new(policy, Arc::new(Prepared { store, share }));
        if let Some((old, how)) = replaces {
            state.debts.hand_over(old, &opened, how);
        }
        Ok(opened)
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let state = &self.0;
        let mut inner: SmallVec<[Ask<'_>; 4]> = SmallVec::with_capacity(asks.len());
        for ask in asks {
            let Some(prepared) = ask.policy().prepared::<Prepared>() else {
                return DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::ForeignPolicy)));
            };
            let of_fallback = fallback::is_its(ask);
            if of_fallback && matches!(ask.mode(), Mode::Return | Mode::Depart) {
                // Turns go to whoever gave them.
                return DecisionFuture::ready(
                    state.decide_alone(asks, StoreError::new(StoreErrorKind::Unavailable)),
                );
            }
            let ask = ask.on(&prepared.store);
            // The store never knew of it; the debt is struck off when it has answered.
            inner.push(if of_fallback { ask.plainly(Mode::Refund).with_costs(&[0]) } else { ask });
        }
        let Some(leave) = state.leave(state.store.parts(&inner)) else {
            let reason = "it has failed too often, and is left alone for a moment";
            let reason = StoreError::with_source(StoreErrorKind::Unavailable, reason);
            return DecisionFuture::ready(state.decide_alone_and_count(asks, reason));
        };
        match state.store.decide(&inner).now() {
            Ok(result) => DecisionFuture::ready(state.decided(asks, leave, result)),
            Err(verdict) => {
                let reports = asks.iter().any(|ask| !ask.mode().asks());
                let asks: SmallVec<[Kept; 1]> = asks.iter().map(Kept::new).collect();
                let report = reports.then(|| Report::begin(Arc::clone(state)));
                let state = Arc::clone(state);
                let answer = async move {
                    let _report = report;
                    let result = state.within_deadline(verdict).await;
                    let asks: SmallVec<[Ask<'_>; 4]> = asks.iter().map(Kept::ask).collect();
                    state.decided(&asks, leave, result)
                };
                match tokio::runtime::Handle::try_current() {
                    // What has happened is noted, with the store or without, even if nobody waits for the answer.
                    Ok(runtime) if reports => {
                        let task = runtime.spawn(answer);
                        DecisionFuture::pending(async {
                            task.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))
                        })
                    }
                    _ => DecisionFuture::pending(answer),
                }
            }
        }
    }
}

/// A report that is counted until the store knows of it, or it is owed.
struct Report(Arc<State>);

impl Report {
    fn begin(state: Arc<State>) -> Self {
        // Relaxed: a number to look at.
        state.reports.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.0.reports.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An ask that outlives the call.
struct Kept {
    policy: PreparedPolicy,
    key: Key,
    cost: u64,
    costs: SmallVec<[u64; 2]>,
    mode: Mode,
    receipt: Option<Receipt>,
}

impl Kept {
    fn new(ask: &Ask<'_>) -> Self {
        Self {
            policy: ask.policy().clone(),
            key: ask.key().to_key(),
            cost: ask.cost(),
            costs: ask.costs().into(),
            mode: ask.mode(),
            receipt: ask.receipt().map(Receipt::copied),
        }
    }

    fn ask(&self) -> Ask<'_> {
        let mut ask = Ask::new(&self.policy, self.key.as_ref(), self.cost, self.mode);
        if !self.costs.is_empty() {
            ask = ask.with_costs(&self.costs);
        }
        match &self.receipt {
            Some(receipt) => ask.of(receipt),
            None => ask,
        }
    }
}

impl State {
    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    async fn within_deadline(&self, verdict: DecisionFuture) -> Result<Decision, StoreError> {
        let Some(within) = self.deadline else { return verdict.await };
        let result = tokio::time::timeout(within, verdict).await;
        result.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)))
    }

    /// Whether the store is asked for these parts.
    fn asks(&self, parts: u64) -> bool {
        each(parts).all(|part| self.breakers[part].state() == BreakerState::Closed)
    }

    /// The longest that one of the parts is left alone from now.
    fn longest_pause(&self) -> Duration {
        let now_us = self.now_us();
        self.breakers.iter().map(|breaker| breaker.pause(now_us)).max().unwrap_or_default()
    }

    /// What the store's answer leads to.
    fn decided(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        leave: Leave,
        result: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        match result {
            Ok(decision) => {
                leave.succeeded();
                self.keep_warm(asks, &decision);
                if self.debts.count() > 0 {
                    self.settle();
                }
                Ok(decision)
            }
            Err(error) if error.is_transient() => {
                self.counts.failed(&error);
                leave.failed(&error);
                self.decide_alone_and_count(asks, error)
            }
            // A mistake in the program says nothing about the store.
            Err(error) => Err(error),
        }
    }

    fn decide_alone_and_count(&self, asks: &[Ask<'_>], reason: StoreError) -> Result<Decision, StoreError> {
        self.counts.decided_alone();
        self.decide_alone(asks, reason)
    }
}
