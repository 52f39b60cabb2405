//! Waiting for a reserved turn, first come, first served.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep};

use crate::decision::Decision;
use crate::key::Key;
use crate::limiter::RateLimiter;

/// A reserved turn: a future that is ready when the turn has come, with the decision as it stands then.
///
/// # Cancel safety
/// A turn that is dropped before it came is given back: those of this process who wait behind it for the same key,
/// with the same cost, move up by one, and the last turn returns to the store. Where that is not possible (others
/// wait behind it with other costs, or under several limits at once) the turn is lost rather than given twice, so that
/// never more is admitted than the policy allows.
#[must_use = "a turn has to be awaited; dropping it gives it back"]
pub struct Turn {
    sleep: Pin<Box<Sleep>>,
    places: SmallVec<[Place; 1]>,
    place: Arc<Waiting>,
    has_come: bool,
    decision: Option<Decision>,
}

/// One limiter's queue that a turn stands in.
struct Place {
    limiter: RateLimiter,
    key: Key,
    cost: u64,
}

/// One waiting request, as those before it in the queue see it.
struct Waiting {
    /// Under this many limits at once.
    limits: usize,
    cost: u64,
    slot: Mutex<(Instant, Option<Waker>)>,
}

impl Turn {
    /// The turn that an allowed decision of these limiters, with these costs, has reserved.
    pub fn new(decision: Decision, limits: impl IntoIterator<Item = (RateLimiter, Key, u64)>) -> Self {
        let delay = decision.delay();
        let places: SmallVec<[Place; 1]> =
            limits.into_iter().map(|(limiter, key, cost)| Place { limiter, key, cost }).collect();
        // tokio caps what cannot be represented at some thirty years.
        let now = Instant::now();
        let departs = now.checked_add(delay).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365 * 30));
        let place = Arc::new(Waiting {
            limits: places.len(),
            cost: places.first().map_or(0, |place| place.cost),
            slot: Mutex::new((departs, None)),
        });
        for Place { limiter, key, .. } in &places {
            limiter.queues().enter(key, &place);
        }
        Self {
            sleep: Box::pin(tokio::time::sleep_until(departs)),
            places,
            place,
            has_come: false,
            decision: Some(decision),
        }
    }
}

impl Future for Turn {
    type Output = Decision;

    /// # Panics
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let departs = {
            let mut slot = self.place.slot();
            slot.1 = Some(cx.waker().clone());
            slot.0
        };
        if self.sleep.deadline() != departs {
            self.sleep.as_mut().reset(departs);
        }
        ready!(self.sleep.as_mut().poll(cx));
        self.has_come = true;
        let decision = self.decision.take().expect("a turn is polled until it has come, once");
        let delay = decision.delay();
        Poll::Ready(decision.later(delay))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for Place { limiter, key, cost } in &self.places {
            if limiter.queues().leave(key, &self.place, self.has_come) {
                // The store begins with it at once; nobody has to wait for its answer.
                drop(limiter.refund(key, *cost));
            }
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("departs", &self.sleep.deadline()).finish_non_exhaustive()
    }
}

impl Waiting {
    fn slot(&self) -> MutexGuard<'_, (Instant, Option<Waker>)> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who waits for which key of one limiter, in the order of their turns.
#[derive(Default)]
pub(crate) struct Queues(Mutex<HashMap<Key, VecDeque<Arc<Waiting>>>>);

impl Queues {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<Arc<Waiting>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, key: &Key, waiting: &Arc<Waiting>) {
        let departs = waiting.slot().0;
        let mut queues = self.lock();
        let queue = queues.entry(key.clone()).or_default();
        let position = queue.partition_point(|other| other.slot().0 <= departs);
        queue.insert(position, Arc::clone(waiting));
    }

    /// Takes a request out of the queue; says whether its unit, or that of the last one behind it, is free now.
    fn leave(&self, key: &Key, waiting: &Arc<Waiting>, has_come: bool) -> bool {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(key) else { return false };
        let Some(position) = queue.iter().position(|other| Arc::ptr_eq(other, waiting)) else { return false };
        queue.remove(position);
        let free = !has_come && move_up(waiting, queue.range(position..));
        if queue.is_empty() {
            queues.remove(key);
        }
        free
    }
}

/// Gives each of those behind the turn of the one before. Says whether the last turn is free: otherwise the turn
/// that was left is lost, for one that has passed or is of another size would let two go at once.
fn move_up<'a>(left: &Waiting, behind: impl ExactSizeIterator<Item = &'a Arc<Waiting>> + Clone) -> bool {
    let mut free = left.slot().0;
    let alike = behind.clone().all(|other| other.limits == 1 && other.cost == left.cost);
    if behind.len() > 0 && !(left.limits == 1 && alike && free > Instant::now()) {
        return false;
    }
    for other in behind {
        let mut slot = other.slot();
        std::mem::swap(&mut slot.0, &mut free);
        if let Some(waker) = slot.1.take() {
            waker.wake();
        }
    }
    true
}

impl RateLimiter {
    /// Spends `cost` units now, or waits its turn for up to `longest`; first come, first served, without polling.
    ///
    /// A decision that is not allowed comes at once: its turn would have come too late, or never. The decision that
    /// is allowed comes when its turn has.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let mail = Policy::gcra("mail", "2/s burst 1").on(&MemoryStore::new())?;
    /// for _ in 0..3 {
    ///     let decision = mail.acquire("ada@example.org", 1, Duration::from_secs(5)).await?;
    ///     assert!(decision.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store gave no answer.
    ///
    /// # Cancel safety
    /// Dropping the future gives the turn back; see [`Turn`].
    ///
    /// # Panics
    /// When it has to wait outside of a tokio runtime that has its timer enabled.
    pub async fn acquire(
        &self,
        key: impl Into<Key>,
        cost: u64,
        longest: Duration,
    ) -> Result<Decision, crate::StoreError> {
        let key = key.into();
        let decision = self.reserve(&key, cost, longest).await?;
        if decision.delay().is_zero() {
            return Ok(decision);
        }
        Ok(Turn::new(decision, [(self.clone(), key, cost)]).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, MemoryStore, Policy};

    /// The time that tokio's paused clock shows.
    struct Paused(Instant);

    impl Clock for Paused {
        fn now_us(&self) -> u64 {
            crate::clock::micros(self.0.elapsed())
        }
    }

    fn one_a_second() -> RateLimiter {
        let store = MemoryStore::builder().clock(Paused(Instant::now())).build().unwrap();
        Policy::gcra("mail", "1/s").on(&store).unwrap()
    }

    async fn turn(limiter: &RateLimiter, cost: u64) -> Turn {
        let decision = limiter.reserve("ada", cost, Duration::from_secs(60)).await.unwrap();
        Turn::new(decision, [(limiter.clone(), "ada".into(), cost)])
    }

    #[tokio::test(start_paused = true)]
    async fn those_behind_a_dropped_turn_move_up_and_none_goes_twice() {
        let limiter = one_a_second();
        let start = Instant::now();
        let [_now, first, second, third] = [
            turn(&limiter, 1).await,
            turn(&limiter, 1).await,
            turn(&limiter, 1).await,
            turn(&limiter, 1).await,
        ];
        drop(first);
        second.await;
        assert_eq!(start.elapsed().as_secs(), 1);
        third.await;
        assert_eq!(start.elapsed().as_secs(), 2);
        turn(&limiter, 1).await.await;
        assert_eq!(start.elapsed().as_secs(), 3, "the last turn was given back, and is the next one's");
        assert!(limiter.queues().lock().len() <= 1, "queues without waiters are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_cannot_be_passed_on_is_lost_not_doubled() {
        let store = MemoryStore::builder().clock(Paused(Instant::now())).build().unwrap();
        let limiter = Policy::gcra("mail", "1/s burst 2").on(&store).unwrap();
        let start = Instant::now();
        let (_now, small, large) =
            (turn(&limiter, 2).await, turn(&limiter, 1).await, turn(&limiter, 2).await);
        drop(small);
        large.await;
        assert_eq!(start.elapsed().as_secs(), 3, "the larger one keeps its own turn");
        assert!(!limiter.check("ada").await.unwrap().is_allowed());
    }

    #[tokio::test(start_paused = true)]
    async fn too_late_a_turn_is_refused_at_once_and_spends_nothing() {
        let limiter = one_a_second();
        let start = Instant::now();
        let acquire = || limiter.acquire("ada", 1, Duration::from_secs(1));
        assert!(acquire().await.unwrap().is_allowed());
        let (second, third) = tokio::join!(acquire(), acquire());
        assert!(second.unwrap().is_allowed());
        let refused = third.unwrap();
        assert_eq!((refused.is_allowed(), refused.retry_after()), (false, Some(Duration::from_secs(1))));
        assert_eq!(start.elapsed().as_secs(), 1);
    }
}
