//! A queue on a Redis that instances share, kept by [oxana](https://docs.rs/oxana): [`RedisJobs`], and the worker to which oxana hands jobs.
//!
//! The job in oxana is a [`QueuedJob`]. In addition there is a record of each job that oxana has released: of a finished job, with its result, until
//! the result is forgotten; of a parked job, until it is put back.

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deadpool_redis::redis::{AsyncCommands, RedisError, pipe};
use deadpool_redis::{Connection, Pool, PoolError, Runtime};
use oxana::{FromContext, Job, JobContext, JobEnvelope, OxanaError, Queue, QueueConfig, Storage, Worker};
use serde::{Deserialize, Serialize};
use sluicegate_core::error::{ConfigErrorKind, StoreErrorKind};
use sluicegate_core::support::ceil_seconds;
use sluicegate_core::{ConfigError, StoreError};
use tokio::sync::oneshot;

use crate::deferred::queue::{
    JobAttempt, JobQueue, JobRecord, JobState, JobWorker, Pushed, QueueFuture, QueueSettings, QueuedJob,
    StopFuture,
};

/// The longest wait for a connection, and for a reply.
const DEADLINE: Duration = Duration::from_millis(500);

/// The time after which an idle instance looks for jobs again.
const IDLE: Duration = Duration::from_millis(200);

/// The pause after Redis has not answered.
const PAUSE: Duration = Duration::from_millis(500);

/// Jobs on one Redis, for workers on any instance. Clones are the same queue.
///
/// It is a queue of [oxana](https://docs.rs/oxana), in the namespace `sluicegate-deferred:NAME`, whose tools show it. A held job is handed out
/// again when its process has been silent for a [lease](QueueSettings::lease). A job that is not done seven days after it was pushed, or was last
/// put back until a later turn, is dropped. Accepted jobs are as durable as the server's `appendfsync`.
///
/// The bound of [`most_jobs`](QueueSettings::most_jobs) is checked before a job is pushed, so concurrent pushes may exceed it
/// by their number. The queue needs a single server, not a Cluster, preferably one that keeps little else: each instance scans
/// the keys of the server for jobs of silent processes, three times in each lease.
#[derive(Clone)]
pub struct RedisJobs(Arc<OxanaQueue>);

struct OxanaQueue {
    storage: Storage,
    pool: Pool,
    /// The hash in which oxana keeps jobs by their names.
    jobs: String,
    /// The prefix of the keys of records.
    records: String,
    settings: QueueSettings,
}

impl RedisJobs {
    /// The queue of this name on the Redis at this URL. It connects when it is first used.
    ///
    /// # Errors
    /// When the URL cannot be read, the name does not match `[A-Za-z0-9._-]{1,64}`, or a setting is invalid; the error names the value, except
    /// the URL, which may hold a password.
    pub fn connect(url: &str, name: &str, settings: QueueSettings) -> Result<Self, ConfigError> {
        let wrong = |problem: String| ConfigError::new(ConfigErrorKind::Store, problem);
        let settings = settings.checked()?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_name) {
            return Err(wrong(format!(
                "{name:?} is no name of a queue: use 1 to 64 letters, digits, \".\", \"_\" and \"-\""
            )));
        }
        let unreadable = |error: &dyn fmt::Display| {
            wrong(format!("the URL of the Redis for deferred jobs cannot be read: {error}"))
        };
        let pool = deadpool_redis::Config::from_url(url).builder().map_err(|error| unreadable(&error))?;
        let pool = pool
            .wait_timeout(Some(DEADLINE))
            .create_timeout(Some(DEADLINE))
            .recycle_timeout(Some(DEADLINE))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| unreadable(&error))?;
        let namespace = format!("sluicegate-deferred:{name}");
        let storage = storage(&pool, &namespace).map_err(|error| unreadable(&error))?;
        let (jobs, records) = (format!("{namespace}:jobs"), format!("{namespace}:record"));
        Ok(Self(Arc::new(OxanaQueue { storage, pool, jobs, records, settings })))
    }
}

impl OxanaQueue {
    async fn pushed(&self, job: QueuedJob) -> Result<Pushed, StoreError> {
        if job.may_be_known
            && let Some(record) = self.found(&job.id).await?
        {
            return Ok(Pushed::Known(record));
        }
        let (kept, parked) = (self.storage.jobs_count().await, self.storage.dead_count().await);
        let count = kept.map_err(store_error)? + parked.map_err(store_error)?;
        if u64::try_from(count).unwrap_or(u64::MAX) >= self.settings.most_jobs {
            return Ok(Pushed::Full);
        }
        let (id, deferred) = (job.id.clone(), Deferred::of(job));
        match self.storage.try_enqueue(Jobs, deferred).await.map_err(store_error)? {
            Some(_) => Ok(Pushed::Kept),
            // Another instance was faster; if its job is done already, it has left a record.
            None => self.found(&id).await?.map(Pushed::Known).ok_or_else(|| {
                StoreError::with_source(StoreErrorKind::Protocol, "a job was known, and is not any longer")
            }),
        }
    }

    async fn found(&self, id: &str) -> Result<Option<JobRecord>, StoreError> {
        let (label, state) = match self.kept(id).await? {
            (Some(waiting), _) => (waiting.label, JobState::Waiting),
            (None, Some(JobEnd { label, result: None })) => (label, JobState::Parked),
            (None, Some(JobEnd { label, result: Some(result) })) => {
                (label, JobState::Done(decoded(&result)?.into()))
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(JobRecord::new(state, decoded(&label)?)))
    }

    /// The newest form of a job in oxana, and its record, at one moment. A job gets its record, or its other name, before oxana releases it.
    async fn kept(&self, id: &str) -> Result<(Option<Deferred>, Option<JobEnd>), StoreError> {
        let (mut read, [name, other]) = (pipe(), names_of(id));
        read.atomic().hget(&self.jobs, name).hget(&self.jobs, other).get(self.key(id));
        let [one, other, end]: [Option<Vec<u8>>; 3] =
            read.query_async(&mut self.redis().await?).await.map_err(unavailable)?;
        let mut newest = None::<Deferred>;
        for envelope in [one, other].into_iter().flatten() {
            let envelope: JobEnvelope = serde_json::from_slice(&envelope).map_err(unreadable)?;
            let job: Deferred = serde_json::from_value(envelope.job.args).map_err(unreadable)?;
            if newest.as_ref().is_none_or(|newest| newest.put_back < job.put_back) {
                newest = Some(job);
            }
        }
        Ok((newest, end.map(|end| serde_json::from_slice(&end).map_err(unreadable)).transpose()?))
    }

    async fn write(&self, id: &str, record: &JobEnd) -> Result<(), StoreError> {
        let text = serde_json::to_vec(record).map_err(unreadable)?;
        let mut redis = self.redis().await?;
        let written = match record.result {
            Some(_) => redis.set_ex(self.key(id), text, self.settings.results_last.as_secs()).await,
            None => redis.set(self.key(id), text).await,
        };
        written.map_err(unavailable)
    }

    async fn forget(&self, id: &str) -> Result<(), StoreError> {
        self.redis().await?.del(self.key(id)).await.map_err(unavailable)
    }

    /// Hands a job out after this pause, in whole seconds. Returns `false` if a copy of its other name, left by a worker that died, is in the
    /// way.
    async fn put_back(&self, job: &Deferred, pause: Duration) -> Result<bool, StoreError> {
        let seconds = ceil_seconds(pause).max(1);
        self.storage.enqueue_in(Jobs, job.clone(), seconds).await.map_err(store_error)?;
        let (newest, end) = self.kept(&job.id).await?;
        Ok(end.is_some() || newest.is_some_and(|newest| newest.put_back >= job.put_back))
    }

    /// Runs a worker of oxana until it ends or `stopped` is notified.
    async fn run_once(self: &Arc<Self>, worker: &JobWorker, stopped: oneshot::Receiver<()>) {
        let QueueSettings { lease, at_once, .. } = self.settings;
        let hands = Hands { queue: Arc::clone(self), worker: worker.clone() };
        // Uses a new identity: lost claims come back only when the identity that made them is silent.
        let storage = match storage(&self.pool, self.storage.namespace()) {
            Ok(storage) => storage,
            Err(error) => return tracing::error!(%error, "the worker of deferred jobs cannot begin"),
        };
        let runtime = storage
            .runtime(hands)
            .queue_with(Jobs::to_config().concurrency(at_once))
            .worker::<Hands, Deferred>()
            .error_formatter(|_| JobFailed.to_string())
            .heartbeat_interval(lease / 5)
            .dead_process_threshold(lease)
            .resurrect_scan_interval(lease / 3)
            .dequeue_timeout(IDLE)
            .disable_shutdown_timeout()
            .shutdown_on(async move {
                _ = stopped.await;
                Ok(())
            });
        if let Err(error) = runtime.run().await {
            tracing::warn!(%error, "the worker of deferred jobs has lost its Redis, and begins again");
        }
    }

    async fn redis(&self) -> Result<Connection, StoreError> {
        self.pool.get().await.map_err(unsent)
    }

    fn key(&self, id: &str) -> String {
        format!("{}:{id}", self.records)
    }
}

impl JobQueue for RedisJobs {
    fn push(&self, job: QueuedJob) -> QueueFuture<'_, Pushed> {
        Box::pin(self.0.pushed(job))
    }

    fn look_up<'a>(&'a self, id: &'a str) -> QueueFuture<'a, Option<JobRecord>> {
        Box::pin(self.0.found(id))
    }

    fn run(&self, worker: JobWorker, mut stop: StopFuture) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let (tell, stopped) = oneshot::channel();
                let mut running = Box::pin(self.0.run_once(&worker, stopped));
                tokio::select! {
                    () = &mut stop => {
                        _ = tell.send(());
                        return running.await;
                    }
                    () = &mut running => {}
                }
                tokio::select! {
                    () = &mut stop => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        })
    }

    fn unpark(&self) -> QueueFuture<'_, u64> {
        Box::pin(async move {
            let revived = self.0.storage.revive_all_dead().await.map_err(store_error)?;
            Ok(u64::try_from(revived).unwrap_or(u64::MAX))
        })
    }
}

impl fmt::Debug for RedisJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisJobs").field("namespace", &self.0.storage.namespace()).finish_non_exhaustive()
    }
}

/// A job in oxana. Bytes are in base64.
#[derive(Clone, Serialize, Deserialize)]
struct Deferred {
    id: String,
    label: String,
    sealed: String,
    /// The number of times that the job was put back until a later turn, and the attempts that were begun and have failed before.
    #[serde(default)]
    put_back: u32,
    #[serde(default)]
    begun: u32,
    #[serde(default)]
    failed: u32,
}

/// A job that oxana has released: parked, or done with this result.
#[derive(Serialize, Deserialize)]
struct JobEnd {
    label: String,
    result: Option<String>,
}

impl Deferred {
    fn of(QueuedJob { id, label, sealed, .. }: QueuedJob) -> Self {
        let (label, sealed) = (STANDARD.encode(label), STANDARD.encode(sealed));
        Self { id, label, sealed, put_back: 0, begun: 0, failed: 0 }
    }

    fn queued(&self) -> Result<QueuedJob, StoreError> {
        Ok(QueuedJob::new(&*self.id, decoded(&self.label)?, decoded(&self.sealed)?))
    }
}

impl Job for Deferred {
    fn name() -> &'static str {
        NAME
    }

    fn unique_id(&self) -> Option<String> {
        Some(unique_id(&self.id, self.put_back))
    }
}

const NAME: &str = "deferred";

/// The names in oxana of the job with this id. Each time that it is put back, it gets the other one: oxana forgets a job by its name when
/// its attempt ends.
fn names_of(id: &str) -> [String; 2] {
    [0, 1].map(|put_back| format!("{NAME}/{}", unique_id(id, put_back)))
}

fn unique_id(id: &str, put_back: u32) -> String {
    if put_back.is_multiple_of(2) { id.to_owned() } else { format!("{id}+") }
}

/// An attempt has failed, as oxana is told: it stores no cause.
#[derive(Debug)]
struct JobFailed;

impl fmt::Display for JobFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attempt at a deferred job has failed")
    }
}

impl std::error::Error for JobFailed {}

/// The queue in the namespace.
struct Jobs;

impl Queue for Jobs {
    fn to_config() -> QueueConfig {
        QueueConfig::as_static("jobs")
    }
}

/// Takes the jobs that oxana hands out.
#[derive(Clone)]
struct Hands {
    queue: Arc<OxanaQueue>,
    worker: JobWorker,
}

impl FromContext<Self> for Hands {
    fn from_context(hands: &Self) -> Self {
        hands.clone()
    }
}

#[async_trait]
impl Worker<Deferred> for Hands {
    type Error = JobFailed;

    async fn process(&self, job: Deferred, ctx: &JobContext) -> Result<(), JobFailed> {
        self.carry_out(&job, ctx).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "an attempt at a deferred job was not begun");
            Err(JobFailed)
        })
    }

    fn max_retries(&self, job: &Deferred) -> u32 {
        (self.queue.settings.attempts - 1).saturating_sub(job.failed)
    }

    fn retry_delay(&self, job: &Deferred, retries: u32) -> u64 {
        self.queue.settings.pause_after(job.failed.saturating_add(retries).saturating_add(1)).as_secs()
    }
}

impl Hands {
    /// Makes an attempt. An attempt whose process died counts, too.
    ///
    /// # Errors
    /// When Redis does not answer before the attempt is begun.
    async fn carry_out(
        &self,
        job: &Deferred,
        ctx: &JobContext,
    ) -> Result<Result<(), JobFailed>, Box<dyn std::error::Error + Send + Sync>> {
        let attempts = self.queue.settings.attempts;
        let failed = job.failed.saturating_add(ctx.meta.retries);
        let is_last = failed >= attempts - 1;
        let is_unparked = match self.queue.kept(&job.id).await? {
            // The job was done or put back, but oxana has not been notified.
            (_, Some(JobEnd { result: Some(_), .. })) => return Ok(Ok(())),
            (Some(newest), _) if newest.put_back > job.put_back => return Ok(Ok(())),
            // A parked job has only the one attempt that it was put back for.
            (_, end) => end.is_some() && is_last,
        };
        let begun = ctx.state.get::<u32>().await?.unwrap_or(0).saturating_add(job.begun).saturating_add(1);
        if begun > attempts && !is_unparked {
            // Each attempt failed, or its process died.
            if is_last {
                self.keep(job, None).await;
            }
            return Ok(Err(JobFailed));
        }
        ctx.state.update(begun - job.begun).await?;
        if is_unparked {
            self.queue.forget(&job.id).await?;
        }
        match self.worker.carry_out(job.queued()?, begun).await {
            JobAttempt::Done(result) => {
                self.keep(job, Some(STANDARD.encode(result))).await;
                Ok(Ok(()))
            }
            JobAttempt::Failed => {
                if is_last {
                    self.keep(job, None).await;
                }
                Ok(Err(JobFailed))
            }
            JobAttempt::Later(pause) => {
                let (put_back, begun) = (job.put_back.saturating_add(1), begun.min(attempts) - 1);
                self.put_back(Deferred { put_back, begun, failed, ..job.clone() }, pause).await;
                Ok(Ok(()))
            }
        }
    }

    /// Puts a job back, repeating it until Redis has confirmed it.
    async fn put_back(&self, job: Deferred, pause: Duration) {
        loop {
            match self.queue.put_back(&job, pause).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "a deferred job cannot be put back yet"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes the end of a job, repeating it until Redis has confirmed it.
    async fn keep(&self, job: &Deferred, result: Option<String>) {
        let record = JobEnd { label: job.label.clone(), result };
        while let Err(error) = self.queue.write(&job.id, &record).await {
            tracing::warn!(%error, "what became of a deferred job cannot be written yet");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// A handle to the queue, with an identity as a worker of its own.
fn storage(pool: &Pool, namespace: &str) -> Result<Storage, OxanaError> {
    // The bound of the queue counts parked jobs, and no job is dropped for another.
    Storage::builder().namespace(namespace).dead_job_limit(None::<NonZeroUsize>).build_from_pool(pool.clone())
}

fn decoded(text: &str) -> Result<Vec<u8>, StoreError> {
    STANDARD.decode(text).map_err(unreadable)
}

fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::with_source(StoreErrorKind::Protocol, error)
}

fn unavailable(error: RedisError) -> StoreError {
    let kind = if error.is_timeout() { StoreErrorKind::Timeout } else { StoreErrorKind::Unavailable };
    StoreError::with_source(kind, error.to_string())
}

fn unsent(error: PoolError) -> StoreError {
    StoreError::with_source(StoreErrorKind::Unavailable, error.to_string()).unsent()
}

fn store_error(error: OxanaError) -> StoreError {
    match error {
        OxanaError::DeadpoolRedisError(error) => unavailable(error),
        OxanaError::DeadpoolRedisPoolError(error) => unsent(error),
        error => unreadable(error.to_string()),
    }
}
