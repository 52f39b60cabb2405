//! Workers, which run jobs at the pace of the limits that the requests exceeded.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::Store;
use sluicegate_core::store::IntoStore;
use tokio::task::JoinSet;

use crate::deferred::deferral::{Deferral, DeferralParts};
use crate::deferred::job::{Job, Stored, StoredTurn};
use crate::deferred::queue::{JobFailed, JobWorker, QueuedJob};

/// The longest wait for a turn before a job asks again, because a limit may have changed meanwhile.
const LONGEST_TURN: Duration = Duration::from_secs(60);

/// The shortest time between two questions about a turn.
const PAUSE: Duration = Duration::from_millis(500);

/// The result of a job, or the reason why the attempt failed.
pub type JobOutcome = Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

impl Deferral {
    /// Runs jobs with `work` until `stop` is ready; jobs in progress then still take their turns and finish, unless the future is dropped. Before
    /// each attempt a job takes the turn of its request, from the policies of this store that the request exceeded, with their current quotas. A
    /// job needs no turn of a policy that is gone.
    ///
    /// A job runs at least once. It runs again, with the same id, if its worker died, if the queue could not record that it is
    /// done, or if the work failed or panicked; after [`attempts`](crate::deferred::QueueSettings::attempts) it is parked. Call this once on each
    /// worker instance; the pace holds for all instances together if they share the store.
    ///
    /// # Cancel safety
    /// If it is dropped, jobs in progress are dropped, too, and handed out again.
    ///
    /// # Panics
    /// When it is polled outside of a tokio runtime that has its timer enabled.
    pub async fn work<W, F>(
        &self,
        store: impl IntoStore,
        stop: impl Future<Output = ()> + Send + 'static,
        work: W,
    ) where
        W: Fn(Job) -> F + Send + Sync + 'static,
        F: Future<Output = JobOutcome> + Send + 'static,
    {
        let (inner, store, work) = (Arc::clone(&self.0), store.into(), Arc::new(work));
        let worker = JobWorker::new(move |job, attempt| {
            let (inner, store, work) = (Arc::clone(&inner), Arc::clone(&store), Arc::clone(&work));
            Box::pin(async move { inner.carry_out(&*store, &job, attempt, &*work).await })
        });
        self.0.queue.run(worker, Box::pin(stop)).await;
    }
}

impl DeferralParts {
    async fn carry_out<W, F>(
        &self,
        store: &dyn Store,
        job: &QueuedJob,
        attempt: u32,
        work: &W,
    ) -> Result<Vec<u8>, JobFailed>
    where
        W: Fn(Job) -> F,
        F: Future<Output = JobOutcome> + Send + 'static,
    {
        let id = &job.id;
        let outcome = match self.opened(job) {
            Some((turns, request)) => {
                for turn in &turns {
                    wait_for(store, turn).await.map_err(|why| failed(id, attempt, why))?;
                }
                done(work(Job { id: id.clone(), attempt, request })).await
            }
            None => Err("it was not sealed by the secrets of this instance".into()),
        };
        match outcome {
            Ok(result) => Ok(self.seals.own().seal(&format!("result {id}"), &result)),
            Err(error) => Err(failed(id, attempt, error)),
        }
    }

    fn opened(&self, job: &QueuedJob) -> Option<(Vec<StoredTurn>, http::Request<bytes::Bytes>)> {
        let stored = Stored::decode(&self.seals.open(&format!("job {}", job.id), &job.sealed)?)?;
        let request = stored.request()?;
        Some((stored.turns, request))
    }
}

/// Waits until the limit has room for a job.
async fn wait_for(store: &dyn Store, turn: &StoredTurn) -> Result<(), Box<dyn Error + Send + Sync>> {
    let key = turn.key();
    loop {
        // Looked up each time, because the policy may have been replaced or be gone.
        let Some(limiter) = store.limiters().get(&turn.policy) else { return Ok(()) };
        match limiter.check(&key).cost(turn.cost).acquire(LONGEST_TURN).await {
            Ok(decision) if decision.is_allowed() => return Ok(()),
            Ok(decision) => match decision.retry_after() {
                Some(wait) => tokio::time::sleep(wait.clamp(PAUSE, LONGEST_TURN)).await,
                None if decision.is_counted() => {
                    return Err(
                        format!("its cost {} never fits into policy {:?}", turn.cost, turn.policy).into()
                    );
                }
                None => tokio::time::sleep(PAUSE).await,
            },
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Does the work in a task of its own: a panic ends it and not the worker, and it ends with the worker.
async fn done(work: impl Future<Output = JobOutcome> + Send + 'static) -> JobOutcome {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(outcome)) => outcome,
        _ => Err("the work panicked".into()),
    }
}

fn failed(id: &str, attempt: u32, error: Box<dyn Error + Send + Sync>) -> JobFailed {
    // The beginning of an id identifies a job in the log, but gives no access to it.
    tracing::warn!(job = &id[..id.len().min(8)], attempt, %error, "the attempt at a deferred job has failed");
    JobFailed
}
