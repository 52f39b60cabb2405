//! A queue on a Redis that instances share, kept by [oxana](https://docs.rs/oxana): [`RedisJobs`].
//!
//! The job in oxana is a [`QueuedJob`]. Beside it there is a record of each job that oxana has let go of: of one that is done, with its result, until
//! the result is forgotten; of one that is parked, until it is put back.

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deadpool_redis::redis::AsyncCommands;
use deadpool_redis::{Pool, Runtime};
use oxana::{FromContext, Job, JobContext, OxanaError, Queue, QueueConfig, Storage, Worker};
use serde::{Deserialize, Serialize};
use sluicegate_core::error::{ConfigErrorKind, StoreErrorKind};
use sluicegate_core::{ConfigError, StoreError};
use tokio::sync::oneshot;

use crate::deferred::queue::{
    JobFailed, JobQueue, JobRecord, JobState, JobWorker, Pushed, QueueFuture, QueueSettings, QueuedJob,
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
/// It is a queue of [oxana](https://docs.rs/oxana), in the namespace `sluicegate-deferred:NAME`, whose tools show it. A job in hand is handed out
/// again when its process has been silent for a [lease](QueueSettings::lease), and a job that is not done after seven days is dropped. All that was
/// accepted is as durable as the server's `appendfsync`.
///
/// The bound of [`most_jobs`](QueueSettings::most_jobs) is looked at before a job is pushed, so jobs that are pushed at the same moment may exceed it
/// by their number. The queue needs a single server, not a Cluster, and best one that keeps little else: in each third of a lease each instance
/// scans its keys for the jobs of silent processes.
#[derive(Clone)]
pub struct RedisJobs(Arc<OxanaQueue>);

struct OxanaQueue {
    storage: Storage,
    pool: Pool,
    /// The prefix of the keys of records.
    records: String,
    settings: QueueSettings,
}

impl RedisJobs {
    /// The queue of this name on the Redis at this URL. It connects when it is first used.
    ///
    /// # Errors
    /// When the URL cannot be read, the name does not match `[A-Za-z0-9._-]{1,64}`, or a setting cannot work; the error names the value, except
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
        let records = format!("{namespace}:record");
        Ok(Self(Arc::new(OxanaQueue { storage, pool, records, settings })))
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
        let count =
            kept.map_err(|error| store_error(&error))? + parked.map_err(|error| store_error(&error))?;
        if u64::try_from(count).unwrap_or(u64::MAX) >= self.settings.most_jobs {
            return Ok(Pushed::Full);
        }
        let (id, deferred) = (job.id.clone(), Deferred::of(job));
        match self.storage.try_enqueue(Jobs, deferred).await.map_err(|error| store_error(&error))? {
            Some(_) => Ok(Pushed::Kept),
            // Another instance was faster; if its job is done already, it has left a record.
            None => self.found(&id).await?.map(Pushed::Known).ok_or_else(|| {
                StoreError::with_source(StoreErrorKind::Protocol, "a job was known, and is not any longer")
            }),
        }
    }

    /// A job that oxana lets go of has its record before.
    async fn found(&self, id: &str) -> Result<Option<JobRecord>, StoreError> {
        let job = self.storage.get_job(&name_of(id)).await.map_err(|error| store_error(&error))?;
        if let Some(envelope) = job {
            let deferred: Deferred = serde_json::from_value(envelope.job.args).map_err(unreadable)?;
            return Ok(Some(JobRecord::new(JobState::Waiting, decoded(&deferred.label)?)));
        }
        match self.record(id).await? {
            None => Ok(None),
            Some(JobEnd { label, result: None }) => {
                Ok(Some(JobRecord::new(JobState::Parked, decoded(&label)?)))
            }
            Some(JobEnd { label, result: Some(result) }) => {
                Ok(Some(JobRecord::new(JobState::Done(decoded(&result)?), decoded(&label)?)))
            }
        }
    }

    async fn record(&self, id: &str) -> Result<Option<JobEnd>, StoreError> {
        let mut redis = self.pool.get().await.map_err(|error| unsent(&error))?;
        let found: Option<Vec<u8>> = redis.get(self.key(id)).await.map_err(|error| unavailable(&error))?;
        found.map(|record| serde_json::from_slice(&record).map_err(unreadable)).transpose()
    }

    async fn write(&self, id: &str, record: &JobEnd) -> Result<(), StoreError> {
        let text = serde_json::to_vec(record).map_err(unreadable)?;
        let mut redis = self.pool.get().await.map_err(|error| unsent(&error))?;
        let written = match record.result {
            Some(_) => redis.set_ex(self.key(id), text, self.settings.results_last.as_secs()).await,
            None => redis.set(self.key(id), text).await,
        };
        written.map_err(|error| unavailable(&error))
    }

    async fn forget(&self, id: &str) -> Result<(), StoreError> {
        let mut redis = self.pool.get().await.map_err(|error| unsent(&error))?;
        redis.del(self.key(id)).await.map_err(|error| unavailable(&error))
    }

    fn key(&self, id: &str) -> String {
        format!("{}:{id}", self.records)
    }

    /// Runs a worker of oxana until it ends, or `stopped` is told.
    async fn run_once(self: &Arc<Self>, worker: &JobWorker, stopped: oneshot::Receiver<()>) {
        let QueueSettings { lease, at_once, .. } = self.settings;
        let hands = Hands { queue: Arc::clone(self), worker: worker.clone() };
        // With an identity of its own: claims that an identity has lost come back only when that one is silent.
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
            let revived = self.0.storage.revive_all_dead().await.map_err(|error| store_error(&error))?;
            Ok(u64::try_from(revived).unwrap_or(u64::MAX))
        })
    }
}

/// A job in oxana. Bytes are in base64.
#[derive(Serialize, Deserialize)]
struct Deferred {
    id: String,
    label: String,
    sealed: String,
}

/// A job that oxana has let go of: parked, or done with this result.
#[derive(Serialize, Deserialize)]
struct JobEnd {
    label: String,
    result: Option<String>,
}

impl Deferred {
    fn of(QueuedJob { id, label, sealed, .. }: QueuedJob) -> Self {
        Self { id, label: STANDARD.encode(label), sealed: STANDARD.encode(sealed) }
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
        Some(self.id.clone())
    }
}

const NAME: &str = "deferred";

/// The name that oxana gives to the job of this id.
fn name_of(id: &str) -> String {
    format!("{NAME}/{id}")
}

/// The queue in the namespace.
struct Jobs;

impl Queue for Jobs {
    fn to_config() -> QueueConfig {
        QueueConfig::as_static("jobs")
    }
}

/// Takes what oxana hands out.
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

    fn max_retries(&self, _: &Deferred) -> u32 {
        self.queue.settings.attempts - 1
    }

    fn retry_delay(&self, _: &Deferred, retries: u32) -> u64 {
        self.queue.settings.pause_after(retries.saturating_add(1)).as_secs()
    }
}

impl Hands {
    /// Makes an attempt. An attempt that its process did not survive counts, too.
    ///
    /// # Errors
    /// When Redis does not answer before the attempt is begun.
    async fn carry_out(
        &self,
        job: &Deferred,
        ctx: &JobContext,
    ) -> Result<Result<(), JobFailed>, Box<dyn std::error::Error + Send + Sync>> {
        let attempts = self.queue.settings.attempts;
        let is_last = ctx.meta.retries >= attempts - 1;
        let was_put_back = match self.queue.record(&job.id).await? {
            // It was done, and oxana has not heard of it.
            Some(JobEnd { result: Some(_), .. }) => return Ok(Ok(())),
            // A parked job has no attempts left but the one that it was put back for.
            found => found.is_some() && is_last,
        };
        let begun = ctx.state.get::<u32>().await?.unwrap_or(0).saturating_add(1);
        if begun > attempts && !was_put_back {
            // It failed, or its process died, in each attempt.
            if is_last {
                self.keep(job, None).await;
            }
            return Ok(Err(JobFailed));
        }
        ctx.state.update(begun).await?;
        if was_put_back {
            self.queue.forget(&job.id).await?;
        }
        match self.worker.carry_out(job.queued()?, begun).await {
            Ok(result) => {
                self.keep(job, Some(STANDARD.encode(result))).await;
                Ok(Ok(()))
            }
            Err(failed) => {
                if is_last {
                    self.keep(job, None).await;
                }
                Ok(Err(failed))
            }
        }
    }

    /// Writes what became of a job, until Redis has heard of it.
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
    // The bound of the queue counts parked jobs, and none is dropped for another.
    Storage::builder().namespace(namespace).dead_job_limit(None::<NonZeroUsize>).build_from_pool(pool.clone())
}

fn decoded(text: &str) -> Result<Vec<u8>, StoreError> {
    STANDARD.decode(text).map_err(unreadable)
}

fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::with_source(StoreErrorKind::Protocol, error)
}

fn unavailable(error: &deadpool_redis::redis::RedisError) -> StoreError {
    let kind = if error.is_timeout() { StoreErrorKind::Timeout } else { StoreErrorKind::Unavailable };
    StoreError::with_source(kind, error.to_string())
}

fn unsent(error: &deadpool_redis::PoolError) -> StoreError {
    StoreError::with_source(StoreErrorKind::Unavailable, error.to_string()).unsent()
}

fn store_error(error: &OxanaError) -> StoreError {
    match error {
        OxanaError::DeadpoolRedisError(error) => unavailable(error),
        OxanaError::DeadpoolRedisPoolError(error) => unsent(error),
        error => unreadable(error.to_string()),
    }
}

impl fmt::Debug for RedisJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisJobs").field("namespace", &self.0.storage.namespace()).finish_non_exhaustive()
    }
}
