//! The handle of an application ([`Deferral`]), its builder, and the workers that run jobs at the pace of the limits that the requests
//! exceeded.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::{Turn, check_all};
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::IntoStore;
use sluicegate_core::support::lock;
use sluicegate_core::{ConfigError, Decision, Key, RateLimiter, Store, StoreError};
use sluicegate_tower::KeyExtractor;
use sluicegate_tower::defer::{BeforeFuture, Defer, DeferFuture, DeferLayer, DeferredTurn, KeptBefore};
use sluicegate_tower::key::{Extraction, RequestView};
use sluicegate_tower::limits::{IntoLimit, Limits, LimitsHandle};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::job::{Job, JobSeal, JobSeals, StoredTurn, hex, random};
use super::queue::{JobAttempt, JobWorker};
use crate::deferred::answer;
use crate::deferred::job::{Stored, target};
use crate::deferred::queue::{JobQueue, JobRecord, JobState, Pushed, QueuedJob};

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

/// Makes a [`Deferral`].
#[must_use = "a builder does nothing until it builds"]
pub struct DeferralBuilder {
    queue: Arc<dyn JobQueue>,
    owner: Arc<dyn KeyExtractor>,
    secret: Vec<u8>,
    other: Option<Vec<u8>>,
    kept: Vec<HeaderName>,
    longest_body: usize,
    jobs_at: String,
}

impl DeferralBuilder {
    pub(super) fn new(queue: Arc<dyn JobQueue>, owner: Arc<dyn KeyExtractor>, secret: &[u8]) -> Self {
        Self {
            queue,
            owner,
            secret: secret.to_vec(),
            other: None,
            kept: vec![CONTENT_TYPE, IDEMPOTENCY_KEY],
            longest_body: 64 * 1024,
            jobs_at: "/jobs".to_owned(),
        }
    }

    /// Sets a second secret, which decrypts jobs and results but encrypts none: the previous secret, or the next one. To change secrets, give all
    /// instances the new one here, then swap the two, and remove the old one when no earlier jobs and results are left.
    /// Default: none.
    pub fn other_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.other = Some(secret.as_ref().to_vec());
        self
    }

    /// Sets the header fields that are kept with a job; all others are dropped, including cookies and credentials. Default: `Content-Type`, and
    /// `Idempotency-Key`, so that the service behind can recognize a job that it has already served.
    pub fn keep_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.kept = names.into_iter().collect();
        self
    }

    /// Sets the most bytes of a body. A request with a longer body gets the limit's refusal. Default: 64 KiB.
    pub fn longest_body(mut self, bytes: usize) -> Self {
        self.longest_body = bytes;
        self
    }

    /// Sets the path under which clients ask for jobs, for `Location`: `/jobs` is `/jobs/{id}`. Default: `/jobs`.
    pub fn jobs_at(mut self, path: impl Into<String>) -> Self {
        self.jobs_at = path.into();
        self
    }

    /// Makes the deferral.
    ///
    /// # Errors
    /// When a secret has less than 16 bytes, or the path does not begin with a slash, ends with one, or is invalid. The error names the
    /// value.
    pub fn build(self) -> Result<Deferral, ConfigError> {
        let Self { queue, owner, secret, other, kept, longest_body, jobs_at } = self;
        let is_path = jobs_at.parse::<http::uri::PathAndQuery>().is_ok_and(|path| path.query().is_none());
        if !is_path || !jobs_at.starts_with('/') || jobs_at.ends_with('/') {
            let problem = format!(
                "{jobs_at:?} is no path for jobs: write one with a slash at its front and none at its end, as /jobs"
            );
            return Err(ConfigError::new(ConfigErrorKind::Layer, problem));
        }
        let seals = JobSeals::new(&secret, other.as_deref())?;
        let lines = JobLines::default();
        Ok(Deferral(Arc::new(DeferralParts { queue, owner, seals, kept, longest_body, jobs_at, lines })))
    }
}

impl fmt::Debug for DeferralBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferralBuilder").field("jobs_at", &self.jobs_at).finish_non_exhaustive()
    }
}

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
    /// done, or if the work failed or panicked; after [`attempts`](super::QueueSettings::attempts) it is parked. Call this once on each
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
        let opened = self.seals.open(&format!("job {}", job.id), &job.sealed)?;
        let stored: Stored = serde_json::from_slice(&opened).ok()?;
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
