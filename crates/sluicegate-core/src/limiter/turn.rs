//! Waiting for a reserved turn, first come, first served.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use std::{fmt, mem};

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use super::check::{Check, report};
use super::handle::RateLimiter;
use crate::decision::Decision;
use crate::error::AcquireError;
use crate::key::{AsKey, Key};
use crate::receipt::Receipt;
use crate::store::{DecisionFuture, Limiters, Mode, spawn};
use crate::wait::{AskCosts, LineKey, Queues, ReservedTurn, SurplusTurn, TurnPlace};

/// The pause between two checks for the store's answers about turns that were given up.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A reserved turn: a future that is ready when the turn has come, with the decision at that moment.
///
/// Requests that wait for the same limiters and keys, with the same costs, go in the order in which the store has reserved their turns.
/// Limiters that a request does not wait for have counted it when it was decided, and are not asked again. The decision says at which turn the
/// request proceeds, so that a later refund gives back the units that were spent.
///
/// # Cancel safety
/// A request that drops its turn before the turn comes leaves the line: the requests behind it move up, so no request proceeds after
/// its own turn, and the last of their turns goes back to the store. If the store does not take it back, because a later turn
/// depends on it, it passes unused. Units that other limiters have counted go back if their policies keep accounts
/// ([`refunds`](crate::policy::PolicyBuilder::refunds)). A turn that has come is spent, even if it was not polled since.
///
/// If instances share a store, a turn is passed on only within its instance.
#[must_use = "a turn has to be awaited; dropping it gives it back"]
pub struct Turn(Stage);

enum Stage {
    Waiting(Box<PendingTurn>, Pin<Box<Sleep>>),
    Come(Box<Decision>),
    Over,
}

impl Turn {
    /// The turn that a decision of these limiters, with these costs, has reserved. It has come if the decision has no
    /// [delay](Decision::delay), as that of a refused request.
    ///
    /// # Panics
    /// When it has to wait outside of a tokio runtime with an enabled timer.
    pub fn new(decision: Decision, limits: impl IntoIterator<Item = (RateLimiter, Key, u64)>) -> Self {
        let delay = decision.delay();
        if delay.is_zero() {
            return Self(Stage::Come(Box::new(decision)));
        }
        let waiting = PendingTurn::new(decision, limits, after(delay));
        let sleep = Box::pin(tokio::time::sleep_until(waiting.at_latest()));
        Self(Stage::Waiting(Box::new(waiting), sleep))
    }
}

/// The moment after that span; tokio caps spans that cannot be represented at about thirty years.
///
/// So no wait of a caller overflows the timer.
fn after(span: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(span).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365 * 30))
}

impl Future for Turn {
    type Output = Decision;

    /// # Panics
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let decision = loop {
            match &mut self.0 {
                Stage::Waiting(waiting, sleep) => match waiting.poll(cx.waker()) {
                    Ok(decision) => break decision,
                    Err(until) => {
                        if sleep.deadline() != until {
                            sleep.as_mut().reset(until);
                        }
                        ready!(sleep.as_mut().poll(cx));
                    }
                },
                Stage::Come(_) | Stage::Over => match mem::replace(&mut self.0, Stage::Over) {
                    Stage::Come(decision) => break *decision,
                    _ => panic!("a turn is polled until it has come, once"),
                },
            }
        };
        self.0 = Stage::Over;
        Poll::Ready(decision.after_delay())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Stage::Waiting(waiting, _) = &self.0 {
            waiting.leave();
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Turn");
        if let Stage::Waiting(_, sleep) = &self.0 {
            debug.field("departs", &sleep.deadline());
        }
        debug.finish_non_exhaustive()
    }
}

/// A request whose turn has come, with the decision that admitted it. It is spent, so nothing has to be done with it.
#[derive(Debug)]
pub struct Acquired(Decision);

impl Acquired {
    /// The decision.
    pub fn into_decision(self) -> Decision {
        self.0
    }
}

impl Deref for Acquired {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}

impl DerefMut for Acquired {
    fn deref_mut(&mut self) -> &mut Decision {
        &mut self.0
    }
}

impl RateLimiter {
    /// The number of requests that wait for a turn of this limiter now. A request of several limiters counts for
    /// the first of those that it waits for.
    pub fn waiting(&self) -> usize {
        Arc::strong_count(&self.handle.waiting) - 1
    }
}

impl Limiters {
    /// Waits until the store has answered about all turns of its limiters that were given up; at most for `within`. Returns `false` if it
    /// has not.
    ///
    /// For the end of a process: a dropped turn goes back in the background, and is lost if the runtime ends first. Then the
    /// turn stays unused, and requests of other instances wait behind it without need.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::{Policy, Store};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redis = sluicegate_core::MemoryStore::new();
    /// # async fn serve() {}
    /// let mail = Policy::gcra("mail", "2/s burst 1").on(&redis)?;
    /// serve().await; // waiting requests are dropped at the end
    /// mail.store().limiters().turns_returned(Duration::from_secs(5)).await;
    /// // Then the stores are closed.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime with its timer.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn turns_returned(&self, within: Duration) -> bool {
        let until = after(within);
        let all = self.all();
        while all.iter().any(|limiter| limiter.queues().are_returning()) {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            tokio::time::sleep_until(until.min(now + LOOKS_AGAIN_AFTER)).await;
        }
        true
    }
}

impl<K: AsKey> Check<'_, K> {
    /// Spends the cost now, or waits its turn for up to `longest`. First come, first served, without polling.
    ///
    /// It returns when the turn has come. Use it in workers: no loop, one reservation per job. Jobs of one key proceed in the order of arrival; across
    /// instances on one store, in the order in which the store has reserved their turns. A task that checks again and again instead
    /// may be overtaken forever.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let mail = Policy::gcra("mail", "2/s burst 1").on(&MemoryStore::new())?;
    /// for _ in 0..3 {
    ///     mail.check("ada@example.org").acquire(Duration::from_secs(5)).await?; // its turn has come
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// At once, if the turn would come later than `longest` or never, if the key is suspended, and if the store gives no answer.
    ///
    /// # Cancel safety
    /// Dropping the future while it waits gives the turn back; see [`Turn`]. If it is dropped before the store has answered, a turn may
    /// be spent but unused.
    ///
    /// # Panics
    /// When it has to wait outside of a tokio runtime that has its timer enabled.
    pub async fn acquire(self, longest: Duration) -> Result<Acquired, AcquireError> {
        let (limiter, cost) = (self.to_limiter(), self.cost);
        let key = self.key.with_key(|key| key.to_key());
        let decision = limiter.check(&key).cost(cost).reserve(longest).await?;
        if !decision.is_allowed() {
            return Err(AcquireError::refused(&limiter.policy(), decision, longest));
        }
        Ok(Acquired(Turn::new(decision, [(limiter, key, cost)]).await))
    }
}

/// One waiting request, with its limits and its place.
pub(super) struct PendingTurn {
    /// Its own decision. It proceeds with this one, although it may proceed at a turn that another request has reserved.
    decision: Option<Decision>,
    /// The asks of the decision that it waits for.
    asks: SmallVec<[u8; 1]>,
    /// The limiters of these asks, in the same order.
    limiters: SmallVec<[RateLimiter; 1]>,
    place: Arc<TurnPlace>,
    /// The units that its other limiters count already, and give back if it leaves: those of policies that keep accounts.
    counted: Vec<(RateLimiter, Key, Receipt)>,
    /// Counts this request among the requests that wait for the limiter.
    _counted: Arc<()>,
}

impl PendingTurn {
    /// Enters the line of the limits that the request waits for; `at` is the moment of its turn.
    pub(super) fn new(
        decision: Decision,
        limits: impl IntoIterator<Item = (RateLimiter, Key, u64)>,
        at: Instant,
    ) -> Self {
        let by = decision.decided_by();
        let (mut line, mut costs) = (LineKey { limits: SmallVec::new(), by }, AskCosts::new());
        let mut turn = ReservedTurn { spent_us: decision.spent_us(), receipts: SmallVec::new() };
        let (mut asks, mut limiters, mut counted) = (SmallVec::new(), SmallVec::new(), Vec::new());
        for (ask, (limiter, key, cost)) in (0_u8..).zip(limits) {
            let receipt = decision.receipt(ask.into());
            if decision.delays(ask) {
                line.limits.push((Arc::as_ptr(&limiter.handle).addr(), key));
                costs.push(cost);
                turn.receipts.push(receipt);
                asks.push(ask);
                limiters.push(limiter);
            } else if let Some(receipt) = receipt.filter(|_| limiter.policy().gives_back()) {
                counted.push((limiter, key, receipt));
            }
        }
        let first: &RateLimiter = &limiters[0];
        let place = Arc::new(first.queues().enter(line, costs, at, turn));
        let _counted = Arc::clone(&first.handle.waiting);
        let pending = Self { decision: Some(decision), asks, limiters, place, counted, _counted };
        pending.give_back_turns();
        pending
    }

    /// The decision of the request, if its turn has come; otherwise the time until which to wait.
    pub(super) fn poll(&mut self, waker: &Waker) -> Result<Decision, Instant> {
        let turn = self.queues().poll(&self.place, waker)?;
        let receipts = self.asks.iter().copied().zip(turn.receipts);
        let decision = self.decision.take().expect("a turn comes once");
        Ok(decision.at_turn(turn.spent_us, receipts))
    }

    /// The latest moment at which the request proceeds.
    pub(super) fn at_latest(&self) -> Instant {
        self.place.at_latest()
    }

    pub(super) fn leave(&self) {
        if !self.queues().leave(&self.place) {
            return;
        }
        if !self.counted.is_empty() {
            let spends = self.counted.iter().map(|(limiter, key, receipt)| (limiter, key, receipt));
            // The store starts at once; its answer is not needed here.
            drop(report(spends, Mode::Refund));
        }
        self.give_back_turns();
    }

    /// Gives back the turns of the line that no request needs, if nobody does.
    fn give_back_turns(&self) {
        let Some(first) = self.queues().start_returns(&self.place) else { return };
        let place = Arc::clone(&self.place);
        let returns = TurnReturns { limiters: self.limiters.clone(), place, is_over: false };
        let mut returns = Box::pin(returns.give_back(first));
        // Memory answers at once. Without a runtime, the store is asked about the first turn only.
        if returns.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
            && let Ok(runtime) = Handle::try_current()
        {
            spawn(&runtime, returns);
        }
    }

    /// The queues in which the request waits for its turn.
    fn queues(&self) -> &Queues {
        self.limiters[0].queues()
    }
}

/// Gives back the turns of a line, one after the other: the store takes back only its last turn, and over a network one return may
/// overtake another.
struct TurnReturns {
    limiters: SmallVec<[RateLimiter; 1]>,
    place: Arc<TurnPlace>,
    is_over: bool,
}

impl TurnReturns {
    async fn give_back(mut self, first: SurplusTurn) {
        let mut next = Some(first);
        while let Some(surplus) = next {
            let answer = self.report(&surplus.1.1).await;
            // Without an answer it is unknown whether the turn was taken back: it is lost rather than used twice.
            let kept = answer.is_ok_and(|decision| !decision.is_allowed()).then_some(surplus);
            next = self.limiters[0].queues().next_return(&self.place, kept);
        }
        self.is_over = true;
    }

    fn report(&self, turn: &ReservedTurn) -> DecisionFuture {
        let keys = self.place.line.limits.iter().map(|(_, key)| key);
        let spends = self.limiters.iter().zip(keys).zip(&turn.receipts);
        report(
            spends.filter_map(|((limiter, key), receipt)| Some((limiter, key, receipt.as_ref()?))),
            Mode::Return,
        )
    }
}

impl Drop for TurnReturns {
    /// Its runtime may end before the store has answered.
    fn drop(&mut self) {
        if !self.is_over {
            self.limiters[0].queues().stop_returns(&self.place);
        }
    }
}
