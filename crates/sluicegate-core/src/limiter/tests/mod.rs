//! Tests of turns, on the memory store and on a store with scripted answers.

mod queue;
mod scripted;

use std::time::Duration;

use tokio::time::Instant;

use super::{RateLimiter, Turn};
use crate::clock::TokioClock;
use crate::error::AcquireErrorKind;
use crate::{MemoryStore, Policy};

fn one_a_second() -> RateLimiter {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    Policy::gcra("mail", "1/s").on(&store).unwrap()
}

async fn turn(limiter: &RateLimiter, cost: u64) -> Turn {
    let decision = limiter.check("ada").cost(cost).reserve(Duration::from_secs(60)).await.unwrap();
    Turn::new(decision, [(limiter.clone(), "ada".into(), cost)])
}

#[tokio::test(start_paused = true)]
async fn those_behind_a_dropped_turn_move_up_and_none_goes_twice() {
    let limiter = one_a_second();
    let start = Instant::now();
    let [_now, first, second, third] =
        [turn(&limiter, 1).await, turn(&limiter, 1).await, turn(&limiter, 1).await, turn(&limiter, 1).await];
    drop(first);
    let _ = second.await;
    assert_eq!(start.elapsed().as_secs(), 1);
    let _ = third.await;
    assert_eq!(start.elapsed().as_secs(), 2);
    assert!(limiter.queues().len() <= 1, "queues without waiters are gone");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_cannot_be_passed_on_is_lost_not_doubled() {
    let store = MemoryStore::builder().clock(TokioClock::new()).build().unwrap();
    let limiter = Policy::gcra("mail", "1/s burst 2").on(&store).unwrap();
    let start = Instant::now();
    let (_now, small, large) = (turn(&limiter, 2).await, turn(&limiter, 1).await, turn(&limiter, 2).await);
    drop(small);
    let _ = large.await;
    assert_eq!(start.elapsed().as_secs(), 3, "the larger one keeps its own turn");
    assert!(!limiter.check("ada").await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn too_late_a_turn_is_refused_at_once_and_spends_nothing() {
    let limiter = one_a_second();
    let start = Instant::now();
    let acquire = || limiter.check("ada").acquire(Duration::from_secs(1));
    assert!(acquire().await.unwrap().is_allowed());
    let (second, third) = tokio::join!(acquire(), acquire());
    assert!(second.unwrap().is_allowed());
    let refused = third.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.retry_after()),
        (AcquireErrorKind::TooLate, Some(Duration::from_secs(1)))
    );
    assert!(
        refused.to_string().ends_with("a turn would come in 2 s, and the longest wait is 1 s"),
        "{refused}"
    );
    assert_eq!(start.elapsed().as_secs(), 1);
}
