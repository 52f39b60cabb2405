//! The handle of an application: [`Deferral`].

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use sluicegate_core::{Key, StoreError};
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::defer::{BeforeFuture, Defer, DeferFuture, DeferLayer, DeferredTurn, KeptBefore};
use sluicegate_tower::key::{Extraction, RequestView};
use sluicegate_tower::limits::{IntoLimit, Limits, LimitsHandle};

use crate::deferred::answer;
use crate::deferred::builder::DeferralBuilder;
use crate::deferred::job::{Stored, target};
use crate::deferred::queue::{JobQueue, JobRecord, JobState, Pushed, QueuedJob};
use crate::deferred::seal::{JobSeal, JobSeals, hex, random};
use crate::deferred::work::JobLines;

/// Keeps requests that exceed a limit, and answers 202: see the [module](crate::deferred). Clones share the queue.
#[derive(Clone)]
pub struct Deferral(pub(super) Arc<DeferralParts>);

pub(super) struct DeferralParts {
    pub(super) queue: Arc<dyn JobQueue>,
    pub(super) owner: Arc<dyn KeyExtractor>,
    pub(super) seals: JobSeals,
    pub(super) kept: Vec<HeaderName>,
    pub(super) longest_body: usize,
    pub(super) jobs_at: String,
    pub(super) lines: JobLines,
}

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The most bytes of an idempotency key.
const LONGEST_KEY: usize = 255;

impl Deferral {
    /// Begins a deferral that keeps requests in this queue. `owner` identifies the owner of a job, for example by API key: only the owner may ask
    /// for a job, idempotency keys are separate for each owner, and a request without an owner is not kept. The `secret`, of at least 16 bytes,
    /// encrypts jobs and results; all instances need the same secret.
    pub fn builder(
        queue: impl JobQueue,
        owner: impl KeyExtractor,
        secret: impl AsRef<[u8]>,
    ) -> DeferralBuilder {
        DeferralBuilder::new(Arc::new(queue), Arc::new(owner), secret.as_ref())
    }

    /// A layer with this limit that keeps the requests that exceed it. Put it inside of layers that refuse.
    pub fn layer(&self, limit: impl IntoLimit) -> DeferLayer {
        DeferLayer::new(LimitsHandle::new(Limits::new(limit)), Arc::new(self.clone()))
    }

    /// Answers a request for a job, whose id is the last segment of the path, with its state, and its result when it is done. Mount it at the path
    /// that [`jobs_at`](DeferralBuilder::jobs_at) sets.
    ///
    /// A job that is unknown, or of another owner, is 404.
    ///
    /// # Cancel safety
    /// It changes nothing, so it may be dropped at any time.
    pub async fn answer(&self, request: impl Into<RequestView<'_>>) -> Response<Bytes> {
        let request = request.into();
        let id = request.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        let owner = self.0.owner.extract(request);
        let is_id = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let Some(owner) = extracted(owner).await.filter(|_| is_id) else { return answer::unknown() };
        match self.0.queue.look_up(&id).await {
            Ok(Some(record)) if self.0.is_of(&record, &owner) => match &record.state {
                JobState::Done(sealed) => match self.0.seals.open(&format!("result {id}"), sealed) {
                    Some(result) => answer::standing(&id, &record.state, Some(&result)),
                    None => answer::unknown(),
                },
                state => answer::standing(&id, state, None),
            },
            Ok(_) => answer::unknown(),
            Err(error) => {
                tracing::warn!(%error, "the queue of deferred jobs does not answer");
                answer::away()
            }
        }
    }

    /// Puts all parked jobs back, each for one more attempt, and returns their number.
    ///
    /// # Errors
    /// When the queue does not answer.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, some jobs may have been put back.
    pub async fn unpark(&self) -> Result<u64, StoreError> {
        self.0.queue.unpark().await
    }
}

impl Defer for Deferral {
    fn before(&self, request: RequestView<'_>) -> Option<BeforeFuture> {
        let key = match idempotency_key(request.headers) {
            Ok(key) => key?.to_owned(),
            Err(problem) => return Some(Box::pin(async move { KeptBefore::Answer(*problem) })),
        };
        let (deferral, owner) = (self.0.clone(), self.0.owner.extract(request));
        Some(Box::pin(async move {
            let Some(owner) = extracted(owner).await else { return KeptBefore::No };
            match deferral.known(&owner, &key).await {
                Ok(None) => KeptBefore::No,
                Ok(Some((id, record))) => {
                    KeptBefore::ByBody(Box::new(move |request| deferral.repeated(&id, &record, request)))
                }
                Err(error) => {
                    tracing::warn!(%error, "the queue of deferred jobs does not answer");
                    KeptBefore::Answer(answer::away())
                }
            }
        }))
    }

    fn longest_body(&self) -> usize {
        self.0.longest_body
    }

    fn defer(&self, request: Request<Bytes>, turns: Vec<DeferredTurn>) -> DeferFuture {
        let (deferral, owner) = (self.clone(), self.0.owner.extract((&request).into()));
        Box::pin(async move {
            let owner = extracted(owner).await?;
            deferral.0.keep(&owner, &request, &turns).await
        })
    }
}

impl DeferralParts {
    /// The job with this idempotency key.
    async fn known(&self, owner: &Key, key: &str) -> Result<Option<(String, JobRecord)>, StoreError> {
        for seal in self.seals.all() {
            let id = id_of(seal, owner, key);
            if let Some(record) = self.queue.look_up(&id).await? {
                return Ok(Some((id, record)));
            }
        }
        Ok(None)
    }

    /// The answer to a request whose idempotency key is that of this job: only the same request is accepted again.
    fn repeated(&self, id: &str, record: &JobRecord, request: Request<Option<Bytes>>) -> Response<Bytes> {
        let (head, body) = request.into_parts();
        let detail = match body.map(|body| self.has(record, &Request::from_parts(head, body))) {
            Some(true) => return answer::accepted(&self.jobs_at, id),
            Some(false) => {
                "another request had this Idempotency-Key, with another method, path or body: use a new key for each"
            }
            None => {
                "this Idempotency-Key is known, and the body could not be read to compare both: use a new key for another request"
            }
        };
        answer::problem(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    async fn keep(
        &self,
        owner: &Key,
        request: &Request<Bytes>,
        turns: &[DeferredTurn],
    ) -> Option<Response<Bytes>> {
        let key = match idempotency_key(request.headers()) {
            Ok(key) => key,
            Err(problem) => return Some(*problem),
        };
        let stored = Stored::of(request, &self.kept, turns)?;
        let seal = self.seals.own();
        let id = key.map_or_else(|| hex(&random::<16>()), |key| id_of(seal, owner, key));
        let label = [seal.digest("owner", &[owner.as_bytes()]), print(seal, request)].concat();
        let job = QueuedJob::new(&*id, label, seal.seal(&format!("job {id}"), &stored.encode()));
        let job = if key.is_some() { job.that_may_be_known() } else { job };
        match self.queue.push(job).await {
            Ok(Pushed::Kept) => Some(answer::accepted(&self.jobs_at, &id)),
            Ok(Pushed::Known(record)) => Some(self.repeated(&id, &record, request.clone().map(Some))),
            Ok(Pushed::Full) => None,
            Err(error) => {
                tracing::warn!(%error, "the queue of deferred jobs does not answer");
                Some(answer::not_kept(&error, key.is_some()))
            }
        }
    }

    fn is_of(&self, record: &JobRecord, owner: &Key) -> bool {
        let digest = |seal: &JobSeal| seal.digest("owner", &[owner.as_bytes()]);
        self.seals.all().any(|seal| record.label.get(..16) == Some(&digest(seal)))
    }

    /// Whether the job is this request, whose idempotency key and owner it has.
    fn has(&self, record: &JobRecord, request: &Request<Bytes>) -> bool {
        self.seals.all().any(|seal| record.label.get(16..) == Some(&print(seal, request)))
    }
}

/// Identifies a request: an idempotency key stands for its method, its path with the query, and its body.
fn print(seal: &JobSeal, request: &Request<Bytes>) -> [u8; 16] {
    let (method, target) = (request.method().as_str(), target(request.uri()));
    seal.digest("print", &[method.as_bytes(), target.as_bytes(), request.body()])
}

/// The id of the job with this idempotency key, which cannot be guessed without the secret.
fn id_of(seal: &JobSeal, owner: &Key, key: &str) -> String {
    hex(&seal.digest("once", &[owner.as_bytes(), key.as_bytes()]))
}

async fn extracted(owner: Extraction) -> Option<Key> {
    match owner.now() {
        Ok(found) => found.ok(),
        Err(pending) => pending.await.ok(),
    }
}

/// Reads `Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"`, with or without the quotes that its draft requires.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Box<Response<Bytes>>> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refused = |detail: &str| Box::new(answer::problem(StatusCode::BAD_REQUEST, detail));
    if values.next().is_some() {
        return Err(refused("idempotency-key is there more than once"));
    }
    match HeaderValue::to_str(value).map(str::trim) {
        Ok(text) if (1..=LONGEST_KEY).contains(&text.len()) => {
            Ok(Some(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)))
        }
        _ => {
            let detail = format!(
                "idempotency-key has {} bytes: use 1 to {LONGEST_KEY} of plain text",
                value.as_bytes().len()
            );
            Err(refused(&detail))
        }
    }
}

impl fmt::Debug for Deferral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferral").field("jobs_at", &self.0.jobs_at).finish_non_exhaustive()
    }
}
