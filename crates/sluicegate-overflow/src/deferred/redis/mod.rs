//! A queue on a Redis that instances share, kept by [oxana](https://docs.rs/oxana): [`RedisJobs`].
//!
//! The job in oxana is a [`QueuedJob`]. In addition there is a record of each job that oxana has released: of a finished job, with its result, until
//! the result is forgotten; of a parked job, until it is put back.

mod worker;

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deadpool_redis::redis::{AsyncCommands, RedisError, pipe};
use deadpool_redis::{Connection, Pool, PoolError, Runtime};
use oxana::{JobEnvelope, OxanaError, Storage};
use sluicegate_core::error::{ConfigErrorKind, StoreErrorKind};
use sluicegate_core::{ConfigError, StoreError};
use tokio::sync::oneshot;

use self::worker::{Deferred, JobEnd, Jobs, names_of};
use crate::deferred::queue::{
    JobQueue, JobRecord, JobState, JobWorker, Pushed, QueueFuture, QueueSettings, QueuedJob, StopFuture,
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

    pub(super) async fn write(&self, id: &str, record: &JobEnd) -> Result<(), StoreError> {
        let text = serde_json::to_vec(record).map_err(unreadable)?;
        let mut redis = self.redis().await?;
        let written = match record.result {
            Some(_) => redis.set_ex(self.key(id), text, self.settings.results_last.as_secs()).await,
            None => redis.set(self.key(id), text).await,
        };
        written.map_err(unavailable)
    }

    pub(super) async fn forget(&self, id: &str) -> Result<(), StoreError> {
        self.redis().await?.del(self.key(id)).await.map_err(unavailable)
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

impl fmt::Debug for RedisJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisJobs").field("namespace", &self.0.storage.namespace()).finish_non_exhaustive()
    }
}
