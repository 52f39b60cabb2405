//! The interface of queues: [`JobQueue`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, StoreError};

/// A queue that keeps jobs until a worker has run them.
///
/// [`MemoryJobs`](crate::deferred::MemoryJobs) is one for a process, and `RedisJobs` (feature `deferred-redis`) one on a Redis that instances share. A
/// job is encrypted before a queue gets it.
///
/// # Contract
/// - A pushed job is handed out at least once, and again until it is done or parked, even if its worker has died.
/// - One worker at a time holds a job. A job of a dead worker is handed out again.
/// - A job whose turn is [later](JobAttempt::Later) is handed out again after that time, and no attempt is counted.
/// - A failed job is handed out again after a pause, and parked after [`attempts`](QueueSettings::attempts) failures.
/// - No job is dropped to make room for another: a full queue accepts none.
pub trait JobQueue: Send + Sync + 'static {
    /// Keeps a job, unless a job with this id is known or the queue is full.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, the job may have been kept or not; push it again with the same id, and it is kept once.
    fn push(&self, job: QueuedJob) -> QueueFuture<'_, Pushed>;

    /// Looks for a job: `None` if no job has this id, or if it was forgotten.
    fn look_up<'a>(&'a self, id: &'a str) -> QueueFuture<'a, Option<JobRecord>>;

    /// Hands jobs to this worker, [`at_once`](QueueSettings::at_once) of them at a time, until `stop` is ready; it then finishes the jobs in
    /// progress. It continues through outages.
    ///
    /// # Cancel safety
    /// If it is dropped, jobs in progress are dropped, too, and handed out again later.
    fn run(&self, worker: JobWorker, stop: StopFuture) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Puts all parked jobs back, each for one more attempt, and returns their number.
    fn unpark(&self) -> QueueFuture<'_, u64>;
}

/// The answer of a queue.
pub type QueueFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The end of a [`run`](JobQueue::run).
pub type StopFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A job, as a queue keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedJob {
    /// 32 hexadecimal digits, unique to this job.
    pub id: String,
    /// Whether a job with this id may be known. If not, a queue need not look for one.
    pub may_be_known: bool,
    /// Digests of the owner and of the request, for comparison.
    pub label: Vec<u8>,
    /// The request and its turns, encrypted.
    pub sealed: Bytes,
}

impl QueuedJob {
    /// A job with these parts and a new id.
    pub fn new(id: impl Into<String>, label: Vec<u8>, sealed: impl Into<Bytes>) -> Self {
        Self { id: id.into(), may_be_known: false, label, sealed: sealed.into() }
    }

    /// Marks the id as one that may be known.
    #[must_use]
    pub fn that_may_be_known(self) -> Self {
        Self { may_be_known: true, ..self }
    }
}

/// The answer to a push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pushed {
    /// The job is kept.
    Kept,
    /// A job with this id was known; this is its record.
    Known(JobRecord),
    /// The queue is full.
    Full,
}

/// A queue's record of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRecord {
    /// The state of the job.
    pub state: JobState,
    /// The label that it was pushed with.
    pub label: Vec<u8>,
}

impl JobRecord {
    /// The record of a job with this state and label.
    pub const fn new(state: JobState, label: Vec<u8>) -> Self {
        Self { state, label }
    }
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobState {
    /// It waits, or a worker holds it.
    Waiting,
    /// It failed too often, and is set aside until it is [put back](JobQueue::unpark).
    Parked,
    /// It is done, with this result, encrypted.
    Done(Bytes),
}

/// Runs the jobs that a queue hands out. Clones are the same worker.
#[derive(Clone)]
pub struct JobWorker(Arc<CarryOut>);

type AttemptFuture = Pin<Box<dyn Future<Output = JobAttempt> + Send>>;

type CarryOut = dyn Fn(QueuedJob, u32) -> AttemptFuture + Send + Sync;

impl JobWorker {
    pub(super) fn new(carry_out: impl Fn(QueuedJob, u32) -> AttemptFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(carry_out))
    }

    /// Runs a job, in this attempt, counted from 1. A panic in the work is a failure.
    ///
    /// # Cancel safety
    /// If it is dropped, the work is dropped; it may have been begun.
    pub fn carry_out(&self, job: QueuedJob, attempt: u32) -> AttemptFuture {
        (self.0)(job, attempt)
    }
}

impl fmt::Debug for JobWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobWorker(..)")
    }
}

/// The end of an attempt at a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobAttempt {
    /// The job is done, with this result, encrypted.
    Done(Bytes),
    /// The attempt has failed. The log has the cause; queues do not store it, because it may contain client data.
    Failed,
    /// The attempt was not begun, because its turn is not soon: the job asks again after this time, at most a minute.
    Later(Duration),
}

/// The settings of a queue, the same on each instance.
///
/// ```
/// use sluicegate_overflow::deferred::{MemoryJobs, QueueSettings};
///
/// let problem = MemoryJobs::new(QueueSettings::default().attempts(0)).unwrap_err().to_string();
/// assert_eq!(problem, "a queue with 0 attempts would carry out no job: use 1 or more");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct QueueSettings {
    pub(super) most_jobs: u64,
    pub(super) at_once: usize,
    pub(super) attempts: u32,
    pub(super) results_last: Duration,
    pub(super) lease: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            most_jobs: 10_000,
            at_once: 4,
            attempts: 5,
            results_last: Duration::from_secs(3_600),
            lease: Duration::from_secs(30),
        }
    }
}

impl QueueSettings {
    /// Sets the most unfinished jobs that are kept, including parked ones. Default: 10,000.
    pub fn most_jobs(mut self, jobs: u64) -> Self {
        self.most_jobs = jobs;
        self
    }

    /// Sets the most jobs that each instance holds at a time, including jobs whose turns come within two seconds. Default: 4.
    pub fn at_once(mut self, jobs: usize) -> Self {
        self.at_once = jobs;
        self
    }

    /// Sets the number of attempts after which a job is parked. Default: 5.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets how long the result and the idempotency key of a job are kept, in whole seconds. Default: an hour.
    pub fn results_last(mut self, lasts: Duration) -> Self {
        self.results_last = lasts;
        self
    }

    /// Sets how long a process may be silent before its jobs are handed out again, on a queue that instances share; also the longest pause after a
    /// failed attempt. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    pub(super) fn checked(self) -> Result<Self, ConfigError> {
        let problem = if self.most_jobs == 0 {
            "a queue of at most 0 jobs would keep none: use 1 or more".to_owned()
        } else if self.at_once == 0 {
            "a queue with 0 jobs at once would carry out no job: use 1 or more".to_owned()
        } else if self.attempts == 0 {
            "a queue with 0 attempts would carry out no job: use 1 or more".to_owned()
        } else if self.results_last < Duration::from_secs(1) {
            format!("a result that lasts {:?} could not be asked for: use 1 s or more", self.results_last)
        } else if self.lease < Duration::from_secs(1) {
            format!(
                "a lease of {:?} would take jobs from workers that are alive: use 1 s or more",
                self.lease
            )
        } else {
            return Ok(self);
        };
        Err(ConfigError::new(ConfigErrorKind::Store, problem))
    }

    /// The pause after this attempt has failed; it doubles with each attempt.
    pub(super) fn pause_after(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(16);
        self.lease.min(Duration::from_secs(1 << doublings))
    }
}
