//! The limits of a body: [`Pacer`].

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_core::limiter::{Turn, check_all};
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, Key, Policy, RateLimiter, StoreError};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use crate::admission::shadow::Shadows;
use crate::trace::BandwidthSpan;

/// The bounds of a piece: with smaller pieces decisions cost more than bytes, with larger ones a body delays the others.
const PIECE: std::ops::RangeInclusive<u64> = 1024..=64 * 1024;

/// The longest that a piece waits in line. If its turn would come later, it asks again.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The pause between two asks if the store gives no answer, or does not say when to ask again.
const PAUSE: Duration = Duration::from_secs(1);

/// The limits that one layer sets for a body. All of them give bytes together, or none does.
pub(crate) struct Pacer {
    limits: SmallVec<[Paced; 1]>,
    shadows: Shadows,
    /// Never locked: it lets bodies be `Sync`, as boxed ones have to be.
    step: Mutex<PaceStep>,
    /// The bytes asked for.
    asked: u64,
    /// The bytes that were given and have not passed.
    credit: u64,
    span: BandwidthSpan,
}

/// A limit of a body.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    limiter: RateLimiter,
    key: Key,
    /// Whether it was asked for the current piece, because its mode may change meanwhile.
    is_asked: bool,
    /// Whether it was in shadow mode, and whether it would have delayed the body then.
    trial: Option<Arc<AtomicBool>>,
}

enum PaceStep {
    Idle,
    Asking(DecisionFuture),
    Turn(Turn),
    /// Until it asks again.
    Pause(Pin<Box<Sleep>>),
}

impl Pacer {
    /// The pace of these limits; a duplicate counts once.
    pub(crate) fn new(limits: impl Iterator<Item = Paced>, shadows: Shadows) -> Option<Self> {
        let mut all = SmallVec::<[Paced; 1]>::new();
        for paced in limits {
            if !all.iter().any(|other| other.limiter.is(&paced.limiter)) {
                all.push(paced);
            }
        }
        (!all.is_empty()).then(|| Self {
            limits: all,
            shadows,
            step: Mutex::new(PaceStep::Idle),
            asked: 0,
            credit: 0,
            span: BandwidthSpan::default(),
        })
    }

    /// The bytes that may pass now: at least one and at most `ahead`, the number available. They stay available until they are [passed](Self::pass).
    pub(super) fn poll_credit(&mut self, ahead: u64, cx: &mut Context<'_>) -> Poll<u64> {
        while self.credit == 0 {
            let next = match self.step() {
                PaceStep::Idle => match self.ask(ahead) {
                    Some(asking) => PaceStep::Asking(asking),
                    None => self.give(),
                },
                PaceStep::Asking(asking) => {
                    let answer = ready!(Pin::new(asking).poll(cx));
                    self.answered(answer)
                }
                PaceStep::Turn(turn) => {
                    let _ = ready!(Pin::new(turn).poll(cx));
                    self.give()
                }
                PaceStep::Pause(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    PaceStep::Idle
                }
            };
            *self.step() = next;
        }
        Poll::Ready(self.credit.min(ahead))
    }

    /// Lets bytes pass that were given.
    pub(super) fn pass(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub(bytes);
    }

    /// Asks for a piece; `None` if no limit is enforced, so that all bytes may pass.
    fn ask(&mut self, ahead: u64) -> Option<DecisionFuture> {
        for paced in &mut self.limits {
            paced.is_asked = paced.mode() == PolicyMode::Enforce;
        }
        // An impossible piece is asked for again, smaller.
        let most = if self.asked == 0 { ahead } else { self.asked };
        let enforced = self.limits.iter().filter(|paced| paced.is_asked);
        self.asked = enforced.map(Paced::piece).fold(most, u64::min);
        let mut checks = self.checks().peekable();
        checks.peek()?;
        Some(check_all(
            checks.map(|(paced, bytes)| paced.limiter.check(&paced.key).cost(bytes).reserve(LONGEST)),
        ))
    }

    fn step(&mut self) -> &mut PaceStep {
        self.step.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn checks(&self) -> impl Iterator<Item = (&Paced, u64)> {
        self.limits.iter().filter(|paced| paced.is_asked).map(|paced| (paced, self.asked))
    }

    fn answered(&mut self, answer: Result<Decision, StoreError>) -> PaceStep {
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => {
                tracing::error!(%error, "a body waits, because its bandwidth cannot be decided");
                return self.pause(PAUSE);
            }
        };
        if !decision.is_counted() {
            return if decision.is_allowed() { self.give() } else { self.pause(PAUSE) };
        }
        if decision.quotas().iter().any(|status| status.is_impossible()) && self.asked > 1 {
            // The burst has become smaller since it was read, here or in another instance.
            self.asked = decision.capacity().clamp(1, self.asked / 2);
            return PaceStep::Idle;
        }
        if decision.is_allowed() && decision.delay().is_zero() {
            return self.give();
        }
        if !decision.is_allowed() {
            return self.pause(decision.retry_after().unwrap_or(PAUSE));
        }
        self.waits(decision.delay());
        PaceStep::Turn(Turn::new(decision, self.owned()))
    }

    fn pause(&mut self, wait: Duration) -> PaceStep {
        self.waits(wait);
        PaceStep::Pause(Box::pin(sleep(wait)))
    }

    /// Notes that the body waits: for the first limit, if there are several.
    fn waits(&mut self, wait: Duration) {
        if let Some(first) = self.limits.iter().find(|paced| paced.is_asked) {
            self.span.waits(wait, &first.limiter);
        }
    }

    /// Gives the bytes asked for. Limits in shadow mode are tried out now.
    fn give(&mut self) -> PaceStep {
        for paced in &mut self.limits {
            if paced.mode() == PolicyMode::Shadow {
                paced.try_out(self.asked);
            }
        }
        self.credit = std::mem::take(&mut self.asked);
        PaceStep::Idle
    }

    fn owned(&self) -> impl Iterator<Item = (RateLimiter, Key, u64)> {
        self.checks().map(|(paced, bytes)| (paced.limiter.clone(), paced.key.clone(), bytes))
    }
}

impl Paced {
    /// A limiter that follows each change of its policy.
    pub(crate) fn new(limiter: &RateLimiter, key: Key) -> Self {
        Self { limiter: limiter.clone(), key, is_asked: false, trial: None }
    }

    fn mode(&self) -> PolicyMode {
        self.limiter.with_policy(Policy::mode)
    }

    /// The bytes of a piece.
    fn piece(&self) -> u64 {
        self.limiter.with_policy(|policy| {
            let pieces = policy.quotas().iter().map(|quota| {
                let (limit, period_us) =
                    (u128::from(quota.quota().limit()), quota.quota().period().as_micros());
                let of_a_tenth = u64::try_from(limit.saturating_mul(100_000) / period_us.max(1));
                // With several limits, at most half of a burst can be held until the last limit has room.
                let half = (quota.rule().capacity() / 2).max(1);
                of_a_tenth.unwrap_or(u64::MAX).clamp(*PIECE.start(), *PIECE.end()).min(half)
            });
            pieces.min().unwrap_or(*PIECE.end())
        })
    }

    /// Spends as many of the bytes as are left, without waiting for the answer.
    fn try_out(&mut self, bytes: u64) {
        let would_hold = Arc::clone(self.trial.get_or_insert_default());
        let holds = move |result: &Result<Decision, StoreError>| {
            let granted = result.as_ref().ok().and_then(Decision::granted);
            granted.is_some_and(|granted| granted < bytes)
        };
        // Relaxed: the flag is only counted.
        match (self.limiter.check(&self.key).up_to(bytes).start().now(), Handle::try_current()) {
            (Ok(result), _) => _ = would_hold.fetch_or(holds(&result), Ordering::Relaxed),
            (Err(pending), Ok(runtime)) => drop(DecisionFuture::begun(&runtime, async move {
                let result = pending.await;
                would_hold.fetch_or(holds(&result), Ordering::Relaxed);
                result
            })),
            (Err(_), Err(_)) => {}
        }
    }
}

impl Drop for Pacer {
    /// An awaited turn goes back by itself; a turn that the store has not answered yet goes back when it does.
    fn drop(&mut self) {
        for paced in &self.limits {
            if let Some(trial) = &paced.trial {
                self.shadows.told(paced.limiter.policy().name(), trial.load(Ordering::Relaxed));
            }
        }
        let PaceStep::Asking(asking) = std::mem::replace(self.step(), PaceStep::Idle) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let owned: SmallVec<[_; 1]> = self.owned().collect();
        drop(DecisionFuture::begun(&runtime, async move {
            let mut decision = asking.await?;
            if decision.is_allowed() && decision.is_counted() && decision.delay().is_zero() {
                for (ask, (limiter, key, bytes)) in owned.iter().enumerate() {
                    if let Some(mut receipt) = decision.take_receipt(ask) {
                        drop(limiter.refund(key, *bytes).of(&mut receipt).start());
                    }
                }
            } else if decision.is_allowed() {
                drop(Turn::new(decision.clone(), owned));
            }
            Ok(decision)
        }));
    }
}

sluicegate_core::debug_as!(Pacer { limits, credit });
