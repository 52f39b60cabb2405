//! Workers: they take jobs at the rate of one policy, together with all others on the same Redis.

use std::error::Error;
use std::time::Duration;

use sluicegate::{RateLimiter, StoreError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::job::Job;
use super::queue::{Cursor, Queue, Taken};

/// Between two looks into an empty queue.
const IDLE: Duration = Duration::from_millis(100);

/// After Redis has not answered.
const PAUSE: Duration = Duration::from_millis(500);

/// A turn is used no later than this, or another one is taken in its place: a machine that is busy wakes its workers late, and two
/// turns would come closer than the rate has them. Not less than the deadline of the store, or a slow answer would be late by itself.
pub(crate) const LATE: Duration = Duration::from_millis(50);

/// How long a worker waits for its turn before it asks for another one.
const LONGEST_TURN: Duration = Duration::from_secs(60);

/// The result of work on a job, or why it failed.
pub(crate) type Outcome = Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

/// Takes one job after the other, until told to stop; the one in hand is finished then. Run as many of these as jobs may be under
/// way at a time: the rate is that of `turns` for all of them on all instances. The future of `work` is polled when its turn has come, and
/// all of the work is in it.
///
/// A job is carried out at least once. It comes again, with the same id, when its worker died or was silent for the length of a lease,
/// when Redis could not be told that it is done, and when the work failed or panicked.
///
/// # Cancel safety
/// Dropping the future drops the work in hand, and the job is taken over when its lease is over.
pub(crate) async fn work<W, F>(queue: &Queue, turns: &RateLimiter, mut stop: watch::Receiver<bool>, work: W)
where
    W: Fn(Job) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    let mut cursor = Cursor::default();
    while !*stop.borrow() {
        let pause = match queue.take(&mut cursor).await {
            Ok(Some(taken)) => {
                carry_out(queue, turns, &taken, &work).await;
                continue;
            }
            Ok(None) => IDLE,
            Err(_) => PAUSE,
        };
        tokio::select! {
            () = sleep(pause) => {}
            // Also when nobody is left who could say it.
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// All that is done about one job. Whatever goes wrong on the way leaves it to its next worker.
async fn carry_out<W, F>(queue: &Queue, turns: &RateLimiter, taken: &Taken, work: &W)
where
    W: Fn(Job) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    let outcome = match queue.open(taken) {
        Some(job) => match in_turn(queue, turns, taken, work(job)).await {
            Some(outcome) => outcome,
            None => return,
        },
        None => Err("the job was sealed by another secret".into()),
    };
    // Until Redis has heard of it: nobody else can take the job over while it does not answer.
    while let Err(error) = match &outcome {
        Ok(result) => queue.finish(taken, result).await,
        Err(_) => queue.fail(taken).await,
    } {
        if !error.may_succeed_later() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Does the work when its turn has come; none if the job is in other hands by then.
async fn in_turn<F>(queue: &Queue, turns: &RateLimiter, taken: &Taken, mut work: F) -> Option<Outcome>
where
    F: Future<Output = Outcome> + Send + 'static,
{
    loop {
        let due = held(queue, taken, turn(turns)).await?;
        // A task of its own: a panic ends it and not the worker, and it ends with the worker.
        let mut task = JoinSet::new();
        // It looks at the time itself, since it may be a while until it runs.
        task.spawn(async move { if due.elapsed() > LATE { Err(work) } else { Ok(work.await) } });
        match held(queue, taken, task.join_next()).await? {
            Some(Ok(Ok(outcome))) => return Some(outcome),
            Some(Ok(Err(late))) => work = late,
            _ => return Some(Err("the work panicked".into())),
        }
    }
}

/// Waits for a turn at the rate of all workers, and says when it was due, at the earliest.
async fn turn(turns: &RateLimiter) -> Instant {
    loop {
        // Redis has counted its delay from then on, or from a little later.
        let asked = Instant::now();
        let answer: Result<_, StoreError> = turns.check("workers").acquire(LONGEST_TURN).await;
        match answer {
            Ok(decision) if decision.is_allowed() => return asked + decision.delay(),
            Ok(decision) => sleep(decision.retry_after().unwrap_or(PAUSE).max(PAUSE)).await,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Waits for something, and keeps the lease of a job meanwhile; none if the job is in other hands.
async fn held<T>(queue: &Queue, taken: &Taken, something: impl Future<Output = T>) -> Option<T> {
    let mut something = std::pin::pin!(something);
    let mut beat = interval(queue.settings.lease / 3);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one is due at once, and a job that was just taken needs none.
    beat.tick().await;
    loop {
        tokio::select! {
            thing = &mut something => return Some(thing),
            _ = beat.tick() => {
                // Without an answer it is not known, and nobody else can ask either.
                if let Ok(false) = queue.hold(taken).await {
                    return None;
                }
            }
        }
    }
}
