//! The oxana side, which hands out jobs: its job, its queue, and its worker.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oxana::{FromContext, Job, JobContext, Queue, QueueConfig, Worker};
use serde::{Deserialize, Serialize};
use sluicegate_core::StoreError;
use tokio::sync::oneshot;

use super::{IDLE, OxanaQueue, PAUSE, decoded, storage};
use crate::deferred::queue::{JobFailed, JobWorker, QueueSettings, QueuedJob};

/// A job in oxana. Bytes are in base64.
#[derive(Serialize, Deserialize)]
pub(super) struct Deferred {
    id: String,
    pub(super) label: String,
    sealed: String,
}

/// A job that oxana has released: parked, or done with this result.
#[derive(Serialize, Deserialize)]
pub(super) struct JobEnd {
    pub(super) label: String,
    pub(super) result: Option<String>,
}

impl Deferred {
    pub(super) fn of(QueuedJob { id, label, sealed, .. }: QueuedJob) -> Self {
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

/// The name in oxana of the job with this id.
pub(super) fn name_of(id: &str) -> String {
    format!("{NAME}/{id}")
}

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

    fn max_retries(&self, _: &Deferred) -> u32 {
        self.queue.settings.attempts - 1
    }

    fn retry_delay(&self, _: &Deferred, retries: u32) -> u64 {
        self.queue.settings.pause_after(retries.saturating_add(1)).as_secs()
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
        let is_last = ctx.meta.retries >= attempts - 1;
        let was_put_back = match self.queue.record(&job.id).await? {
            // The job was done, but oxana has not been notified.
            Some(JobEnd { result: Some(_), .. }) => return Ok(Ok(())),
            // A parked job has only the one attempt that it was put back for.
            found => found.is_some() && is_last,
        };
        let begun = ctx.state.get::<u32>().await?.unwrap_or(0).saturating_add(1);
        if begun > attempts && !was_put_back {
            // Each attempt failed, or its process died.
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
