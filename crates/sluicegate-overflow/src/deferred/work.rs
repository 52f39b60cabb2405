//! Workers, which run jobs at the pace of the limits that the requests exceeded.

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldhash::quality::RandomState;
use sluicegate_core::limiter::{Turn, check_all};
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::IntoStore;
use sluicegate_core::support::lock;
use sluicegate_core::{Decision, Key, RateLimiter, Store};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::deferred::deferral::{Deferral, DeferralParts};
use crate::deferred::job::{Job, Stored, StoredTurn};
use crate::deferred::queue::{JobAttempt, JobWorker, QueuedJob};

/// The most time that a worker waits for the turn of a job.
const SOON: Duration = Duration::from_secs(2);

/// The longest pause before a job asks for its turn again, because a limit may have changed meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The shortest time between two questions about a turn.
const PAUSE: Duration = Duration::from_millis(500);

/// The result of a job, or the reason why the attempt failed.
pub type JobOutcome = Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

impl Deferral {
    /// Runs jobs with `work` until `stop` is ready; jobs in progress then still take their turns and finish, unless the future is dropped. Before
    /// each attempt a job takes the turn of its request, from the policies of this store that the request exceeded, with their current quotas. A
    /// job needs no turn of a policy that is gone. A job whose turn is more than two seconds away has reserved nothing, and goes back to the
    /// queue for at most a minute: it holds no worker meanwhile.
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
    async fn carry_out<W, F>(&self, store: &dyn Store, job: &QueuedJob, attempt: u32, work: &W) -> JobAttempt
    where
        W: Fn(Job) -> F,
        F: Future<Output = JobOutcome> + Send + 'static,
    {
        let id = &job.id;
        let outcome = match self.opened(job) {
            Some((turns, request)) => match self.take(store, &turns).await {
                Ok(None) => done(work(Job { id: id.clone(), attempt, request })).await,
                Ok(Some(pause)) => return JobAttempt::Later(pause),
                Err(never) => Err(never),
            },
            None => Err("it was not sealed by the secrets of this instance".into()),
        };
        match outcome {
            Ok(result) => JobAttempt::Done(self.seals.own().seal(&format!("result {id}"), &result).into()),
            Err(error) => {
                // The beginning of an id identifies a job in the log, but gives no access to it.
                let job = &id[..id.len().min(8)];
                tracing::warn!(job, attempt, %error, "the attempt at a deferred job has failed");
                JobAttempt::Failed
            }
        }
    }

    /// Takes all turns of a job at once, and waits for them if they come soon. Otherwise it takes none, and returns the pause after which the
    /// job asks again.
    ///
    /// # Errors
    /// When a cost fits into no quota.
    async fn take(
        &self,
        store: &dyn Store,
        turns: &[StoredTurn],
    ) -> Result<Option<Duration>, Box<dyn Error + Send + Sync>> {
        loop {
            // Looked up each time, because a policy may have been replaced or be gone.
            let found =
                |turn: &StoredTurn| Some((store.limiters().get(&turn.policy)?, turn.key(), turn.cost));
            let limits: Vec<_> = turns.iter().filter_map(found).collect();
            if limits.is_empty() {
                return Ok(None);
            }
            let checks =
                limits.iter().map(|(limiter, key, cost)| limiter.check(key).cost(*cost).reserve(SOON));
            let Ok(decision) = check_all(checks).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            if decision.is_allowed() {
                let _ = Turn::new(decision, limits).await;
                return Ok(None);
            }
            // In an outage no other job would get a turn either.
            if !decision.is_counted() {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let limit = limits.get(decision.deciding().policy_index()).unwrap_or(&limits[0]);
            let Some(wait) = decision.retry_after() else {
                let (policy, cost) = (limit.0.policy(), limit.2);
                return Err(format!("its cost {cost} never fits into policy {:?}", policy.name()).into());
            };
            return Ok(Some(self.lines.line_up(limit, &decision, wait)));
        }
    }

    fn opened(&self, job: &QueuedJob) -> Option<(Vec<StoredTurn>, http::Request<bytes::Bytes>)> {
        let stored = Stored::decode(&self.seals.open(&format!("job {}", job.id), &job.sealed)?)?;
        let request = stored.request()?;
        Some((stored.turns, request))
    }
}

/// The jobs that ask for their turns within a minute, in a line for each policy and key: the time at which the last one asks.
///
/// Without lines, all jobs of a key would ask for its next turn at once, and all but one of them in vain. A line is an estimate: a job that asks
/// in vain goes to its end, and jobs with later turns ask once a minute.
#[derive(Default)]
pub(super) struct JobLines(Mutex<HashMap<(String, Key), Instant, RandomState>>);

impl JobLines {
    /// The pause of a job that this limit has refused, and that would have its turn soon after `wait` if it was the first.
    fn line_up(
        &self,
        (limiter, key, cost): &(RateLimiter, Key, u64),
        decision: &Decision,
        wait: Duration,
    ) -> Duration {
        let (now, policy) = (Instant::now(), limiter.policy());
        let quota = policy.quotas().get(decision.deciding().quota_index()).map(PolicyQuota::quota);
        let spacing_ns = quota.map_or(0, |quota| {
            quota.period().as_nanos().saturating_mul((*cost).into()) / u128::from(quota.limit().max(1))
        });
        let spacing = Duration::from_nanos(u64::try_from(spacing_ns).unwrap_or(u64::MAX));
        let line = (policy.name().to_owned(), key.clone());
        let mut lines = lock(&self.0);
        let last = lines.get(&line).filter(|last| **last > now);
        let behind = last.map_or(Duration::ZERO, |last| last.duration_since(now).saturating_add(spacing));
        let pause = wait.max(behind).max(PAUSE);
        if pause >= LONGEST_PAUSE {
            return LONGEST_PAUSE;
        }
        if lines.len() == lines.capacity() {
            lines.retain(|_, last| *last > now);
        }
        lines.insert(line, now + pause);
        pause
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
