//! The oxana side, which hands out jobs: its job, its queue, and its worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oxana::{FromContext, Job, JobContext, Queue, QueueConfig, Worker};
use serde::{Deserialize, Serialize};
use sluicegate_core::StoreError;
use sluicegate_core::support::ceil_seconds;
use tokio::sync::oneshot;

use super::{IDLE, OxanaQueue, PAUSE, decoded, storage, store_error};
use crate::deferred::queue::{JobAttempt, JobWorker, QueueSettings, QueuedJob};

/// A job in oxana. Bytes are in base64.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Deferred {
    id: String,
    pub(super) label: String,
    sealed: String,
    /// The number of times that the job was put back until a later turn, and the attempts that were begun and have failed before.
    #[serde(default)]
    pub(super) put_back: u32,
    #[serde(default)]
    begun: u32,
    #[serde(default)]
    failed: u32,
}

/// A job that oxana has released: parked, or done with this result.
#[derive(Serialize, Deserialize)]
pub(super) struct JobEnd {
    pub(super) label: String,
    pub(super) result: Option<String>,
}

impl Deferred {
    pub(super) fn of(QueuedJob { id, label, sealed, .. }: QueuedJob) -> Self {
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
pub(super) fn names_of(id: &str) -> [String; 2] {
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
pub(super) struct Jobs;

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

impl OxanaQueue {
    /// Hands a job out after this pause, in whole seconds. Returns `false` if a copy of its other name, left by a worker that died, is in the
    /// way.
    async fn put_back(&self, job: &Deferred, pause: Duration) -> Result<bool, StoreError> {
        let seconds = ceil_seconds(pause).max(1);
        self.storage.enqueue_in(Jobs, job.clone(), seconds).await.map_err(store_error)?;
        let (newest, end) = self.kept(&job.id).await?;
        Ok(end.is_some() || newest.is_some_and(|newest| newest.put_back >= job.put_back))
    }

    /// Runs a worker of oxana until it ends or `stopped` is notified.
    pub(super) async fn run_once(self: &Arc<Self>, worker: &JobWorker, stopped: oneshot::Receiver<()>) {
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
}
