//! Requests that exceed a limit, and are kept: by a queue in memory, on the paused clock of tokio.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{Ask, IntoStore};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Key, MemoryStore, OnOutage, Policy};
use sluicegate_overflow::deferred::{
    DeferLayer, Deferral, DeferralBuilder, Job, JobOutcome, JobQueue, JobRecord, JobState, JobWorker,
    MemoryJobs, Pushed, QueueFuture, QueueSettings, QueuedJob, StopFuture,
};
use sluicegate_tests::around;
use sluicegate_tests::outages::{FAILS, Scene, WORKS};
use sluicegate_tests::time::Paused;
use sluicegate_tower::key::HeaderKey;
use sluicegate_tower::limits::{Limits, LimitsHandle};
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

const SECRET: &str = "a secret of sixteen bytes, or more";

fn builder(queue: &MemoryJobs) -> DeferralBuilder {
    Deferral::builder(queue.clone(), HeaderKey::new("x-user").unwrap(), SECRET)
}

fn queue(settings: QueueSettings) -> MemoryJobs {
    MemoryJobs::new(settings).unwrap()
}

fn deferral() -> Deferral {
    builder(&queue(QueueSettings::default())).build().unwrap()
}

/// A store on tokio's clock.
fn store() -> MemoryStore {
    MemoryStore::builder().clock(Paused::now()).build().unwrap()
}

fn limit(quota: &str, store: impl IntoStore) -> Limit {
    Limit::new(Policy::gcra("orders", quota).on(store).unwrap()).key(Key::from("all"))
}

fn order(user: &str, fields: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let request = Request::post("/orders?now=1").header("x-user", user);
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

/// The body that a request had when the service got it.
async fn echo(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(request.into_body()))
}

/// The status, and the body as JSON if it is some.
async fn send<S>(service: &S, request: Request<Full<Bytes>>) -> (StatusCode, Value)
where
    S: Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone,
{
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status();
    if status == StatusCode::ACCEPTED {
        assert_eq!(response.headers()["cache-control"], "no-store");
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn id(answer: &(StatusCode, Value)) -> String {
    assert_eq!(answer.0, StatusCode::ACCEPTED, "{answer:?}");
    answer.1["id"].as_str().unwrap().to_owned()
}

async fn ask(deferral: &Deferral, user: &str, id: &str) -> (StatusCode, Value) {
    let request = Request::get(format!("/jobs/{id}")).header("x-user", user).body(()).unwrap();
    let response = deferral.answer(&request).await;
    (response.status(), serde_json::from_slice(response.body()).unwrap())
}

async fn done(job: Job) -> JobOutcome {
    Ok(job.request.into_body().to_vec())
}

/// A queue whose answers come late.
struct Slow(MemoryJobs);

impl JobQueue for Slow {
    fn push(&self, job: QueuedJob) -> QueueFuture<'_, Pushed> {
        self.0.push(job)
    }

    fn look_up<'a>(&'a self, id: &'a str) -> QueueFuture<'a, Option<JobRecord>> {
        Box::pin(async move {
            let found = self.0.look_up(id).await;
            tokio::task::yield_now().await;
            found
        })
    }

    fn run(&self, worker: JobWorker, stop: StopFuture) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.run(worker, stop)
    }

    fn unpark(&self) -> QueueFuture<'_, u64> {
        self.0.unpark()
    }
}

/// The times at which jobs were begun, since a start.
#[derive(Clone)]
struct Begun(Instant, Arc<Mutex<Vec<(String, u32, Duration)>>>);

impl Begun {
    fn now() -> Self {
        Self(Instant::now(), Arc::default())
    }

    fn note(&self, job: &Job) {
        self.1.lock().unwrap().push((job.id.clone(), job.attempt, self.0.elapsed()));
    }

    fn seconds(&self) -> Vec<u64> {
        self.1.lock().unwrap().iter().map(|(_, _, at)| at.as_secs()).collect()
    }
}

/// Works for this long.
async fn work_for<F>(
    deferral: &Deferral,
    store: impl IntoStore,
    span: Duration,
    work: impl Fn(Job) -> F + Send + Sync + 'static,
) where
    F: Future<Output = JobOutcome> + Send + 'static,
{
    deferral.work(store, tokio::time::sleep(span), work).await;
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_request_that_exceeds_the_limit_is_answered_with_202_and_carried_out_when_there_is_room() {
    let (deferral, store) = (deferral(), store());
    let shop = deferral.layer(limit("1/min", &store)).layer(service_fn(echo));
    assert_eq!(send(&shop, order("ada", &[], "1")).await.0, StatusCode::OK);
    let kept = shop.clone().oneshot(order("ada", &[("content-type", "text/plain")], "tea")).await.unwrap();
    let place = kept.headers()["location"].to_str().unwrap().to_owned();
    let id = place.strip_prefix("/jobs/").unwrap();
    assert_eq!((kept.status(), id.len()), (StatusCode::ACCEPTED, 32));
    assert_eq!(ask(&deferral, "ada", id).await.1["state"], "waiting");

    let begun = Begun::now();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        assert_eq!(job.request.uri(), "/orders?now=1");
        assert_eq!(job.request.method(), "POST");
        assert_eq!(job.request.headers()["content-type"], "text/plain");
        done(job)
    };
    work_for(&deferral, &store, 2 * MINUTE, work).await;
    assert_eq!(begun.seconds(), [60]);
    let (status, answer) = ask(&deferral, "ada", id).await;
    assert_eq!(
        (status, &answer["state"], &answer["result"]),
        (StatusCode::OK, &"done".into(), &"tea".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_is_unknown_to_all_but_its_owner_and_after_its_time() {
    let (deferral, store) = (deferral(), store());
    let shop = deferral.layer(limit("1/s", &store)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "1")).await;
    let id = id(&send(&shop, order("ada", &[], "2")).await);
    for (user, id) in [("bob", &*id), ("ada", &"0".repeat(32)), ("ada", "x"), ("ada", ""), ("ada", &id[..31])]
    {
        let (status, answer) = ask(&deferral, user, id).await;
        assert_eq!((status, &answer["detail"]), (StatusCode::NOT_FOUND, &"there is no such job".into()));
    }
    let nobody = deferral.answer(&Request::get(format!("/jobs/{id}")).body(()).unwrap()).await;
    assert_eq!(nobody.status(), StatusCode::NOT_FOUND);
    work_for(&deferral, &store, MINUTE, done).await;
    assert_eq!(ask(&deferral, "ada", &id).await.1["state"], "done");
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(ask(&deferral, "ada", &id).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn jobs_and_requests_together_keep_to_the_limit_and_no_request_overtakes_a_job() {
    let (deferral, store) = (deferral(), store());
    let shop = deferral.layer(limit("1/s", &store)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "0")).await;
    for number in 1..=8 {
        id(&send(&shop, order("ada", &[], &number.to_string())).await);
    }
    let begun = Begun::now();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        done(job)
    };
    let latecomers = async {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(send(&shop, order("bob", &[], "late")).await.0, StatusCode::ACCEPTED);
    };
    tokio::join!(work_for(&deferral, &store, MINUTE, work), latecomers);
    assert_eq!(begun.seconds(), (1..=9).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_is_one_job_for_its_owner_whether_the_limit_has_room_or_not() {
    let (deferral, store) = (deferral(), store());
    let shop = deferral.layer(limit("2/min burst 1", &store)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "")).await;
    let once = [("idempotency-key", "\"k1\"")];
    let first = id(&send(&shop, order("ada", &once, "tea")).await);
    assert_eq!(id(&send(&shop, order("ada", &once, "tea")).await), first);
    assert_eq!(id(&send(&shop, order("ada", &[("idempotency-key", "k1")], "tea")).await), first);
    assert_ne!(id(&send(&shop, order("bob", &once, "tea")).await), first);
    assert_ne!(id(&send(&shop, order("ada", &[("idempotency-key", "k2")], "tea")).await), first);
    // The limit has room again, and the job is not done: the request would be served twice.
    tokio::time::advance(MINUTE).await;
    assert_eq!(id(&send(&shop, order("ada", &once, "tea")).await), first);
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::OK);

    let two = Request::post("/").header("x-user", "ada").header("idempotency-key", "1");
    let two = two.header("idempotency-key", "2").body(Full::default()).unwrap();
    let (status, answer) = send(&shop, two).await;
    assert_eq!(
        (status, &answer["detail"]),
        (StatusCode::BAD_REQUEST, &"idempotency-key is there more than once".into())
    );
    let (status, answer) = send(&shop, order("ada", &[("idempotency-key", &"k".repeat(256))], "")).await;
    let problem = "idempotency-key has 256 bytes: use 1 to 255 of plain text";
    assert_eq!((status, &answer["detail"]), (StatusCode::BAD_REQUEST, &problem.into()));
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_at_two_instances_at_once_is_one_job_and_another_body_is_422() {
    let (queue, store) = (queue(QueueSettings::default()), store());
    let [one, two] = [0, 1].map(|_| builder(&queue).build().unwrap());
    let shop = |deferral: Deferral| deferral.layer(limit("1/h", &store)).layer(service_fn(echo));
    let [one, two] = [one, two].map(shop);
    send(&one, order("ada", &[], "")).await;
    let once = [("idempotency-key", "k")];
    let (first, second) =
        tokio::join!(send(&one, order("ada", &once, "tea")), send(&two, order("ada", &once, "tea")));
    assert_eq!(id(&first), id(&second));
    // Both were looked up before either was kept, and have different bodies.
    let [one, two] = [0, 1].map(|_| {
        let user = HeaderKey::new("x-user").unwrap();
        Deferral::builder(Slow(queue.clone()), user, SECRET).build().unwrap()
    });
    let [one, two] = [one, two].map(shop);
    let once = [("idempotency-key", "k2")];
    let (first, second) =
        tokio::join!(send(&one, order("ada", &once, "tea")), send(&two, order("ada", &once, "coffee")));
    let mut statuses = [first.0.as_u16(), second.0.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 422], "{first:?} {second:?}");
}

/// The second request was once answered as the first, and lost.
#[tokio::test(start_paused = true)]
async fn an_idempotency_key_stands_for_one_method_path_and_body_of_its_owner() {
    let (queue, store) = (queue(QueueSettings::default()), store());
    let deferral = builder(&queue).longest_body(10).build().unwrap();
    let shop = deferral.layer(limit("1/min", &store)).layer(service_fn(echo));
    let once = |method: &str, target: &str, body: &'static str| {
        let request = Request::builder().method(method).uri(target).header("x-user", "ada");
        request.header("idempotency-key", "k").body(Full::from(body)).unwrap()
    };
    send(&shop, order("ada", &[], "")).await;
    let first = id(&send(&shop, once("POST", "/orders", "tea")).await);
    // While it waits, while the limit has room, and after it is done.
    for state in ["waiting", "in time", "done"] {
        for (request, status) in [
            (once("POST", "/orders", "tea"), 202),
            (once("POST", "/orders", "coffee"), 422),
            (once("POST", "/orders", ""), 422),
            (once("POST", "/orders", "more than ten bytes"), 422),
            (once("POST", "/pay", "tea"), 422),
            (once("POST", "/orders?now=1", "tea"), 422),
            (once("PUT", "/orders", "tea"), 422),
        ] {
            let case = format!("{state}: {request:?}");
            let (found, answer) = send(&shop, request).await;
            assert_eq!(found, status, "{case}");
            let (field, said) = if status == 202 { ("id", &*first) } else { ("detail", "Idempotency-Key") };
            assert!(answer[field].as_str().unwrap().contains(said), "{case}: {answer}");
        }
        match state {
            "waiting" => tokio::time::advance(MINUTE).await,
            "in time" => work_for(&deferral, &store, MINUTE, done).await,
            _ => assert_eq!(ask(&deferral, "ada", &first).await.1["state"], "done"),
        }
    }
}

/// The whole result was once copied under the lock of the queue, for each request with its key and before any limit.
#[tokio::test(start_paused = true)]
async fn the_result_of_a_job_is_copied_for_no_request_with_its_idempotency_key() {
    let (queue, store) = (queue(QueueSettings::default()), store());
    let deferral = builder(&queue).build().unwrap();
    let shop = deferral.layer(limit("1/s", &store)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "")).await;
    let once = [("idempotency-key", "k")];
    let first = id(&send(&shop, order("ada", &once, "tea")).await);
    for _ in 0..3 {
        assert_eq!(id(&send(&shop, order("ada", &once, "tea")).await), first);
        work_for(&deferral, &store, MINUTE, done).await;
    }
    let result = async || match queue.look_up(&first).await.unwrap().unwrap().state {
        JobState::Done(result) => result,
        state => panic!("{state:?}"),
    };
    assert_eq!(result().await.as_ptr(), result().await.as_ptr());
    // It is known for as long as its result is kept.
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(queue.look_up(&first).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_kept_is_refused_as_the_limit_refuses_it() {
    let (queue, store) = (queue(QueueSettings::default().most_jobs(1)), store());
    let deferral = builder(&queue).longest_body(8).build().unwrap();
    let shop = deferral.layer(limit("1/min", &store)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "")).await;
    let refused = async |request| {
        let response = shop.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "60");
    };
    refused(order("ada", &[], "123456789")).await;
    refused(Request::post("/orders").body(Full::default()).unwrap()).await;
    let path = format!("/{}", "a".repeat(9_000));
    refused(Request::post(path).header("x-user", "ada").body(Full::default()).unwrap()).await;
    id(&send(&shop, order("ada", &[], "12345678")).await);
    // The queue is full.
    refused(order("ada", &[], "")).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_is_tried_again_and_parked_after_its_last_attempt() {
    let (queue, store) = (queue(QueueSettings::default().attempts(3)), store());
    let deferral = builder(&queue).build().unwrap();
    let shop = deferral.layer(limit("10/s burst 1", &store)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "")).await;
    let [fails, panics, thrice] = ["fails", "panics", "thrice"];
    let mut ids = Vec::new();
    for body in [fails, panics, thrice] {
        ids.push(id(&send(&shop, order("ada", &[], body)).await));
    }
    let begun = Begun::now();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        async move {
            match &job.request.body()[..] {
                b"fails" => Err("it cannot be done".into()),
                b"panics" => panic!("on purpose"),
                b"thrice" if job.attempt < 3 => Err("not yet".into()),
                body => Ok(body.to_vec()),
            }
        }
    };
    work_for(&deferral, &store, MINUTE, work).await;
    let mut states = Vec::new();
    for id in &ids {
        states.push(ask(&deferral, "ada", id).await.1["state"].clone());
    }
    assert_eq!(states, ["parked", "parked", "done"]);
    let of_first: Vec<_> = begun.1.lock().unwrap().iter().filter(|(id, ..)| *id == ids[0]).cloned().collect();
    let attempts: Vec<_> = of_first.iter().map(|(_, attempt, at)| (*attempt, at.as_secs())).collect();
    // Pauses of one second and of two, and the turns.
    assert_eq!(attempts, [(1, 0), (2, 1), (3, 3)]);

    assert_eq!(deferral.unpark().await.unwrap(), 2);
    work_for(&deferral, &store, MINUTE, done).await;
    assert_eq!(ask(&deferral, "ada", &ids[0]).await.1["result"], "fails");
}

#[tokio::test(start_paused = true)]
async fn the_pace_follows_a_policy_that_is_replaced_and_a_policy_that_is_gone_needs_no_turn() {
    let (deferral, store) = (deferral(), store());
    let limiter = Policy::gcra("orders", "1/min").on(&store).unwrap();
    let shop = deferral.layer(Limit::new(limiter.clone()).key(Key::from("all"))).layer(service_fn(echo));
    send(&shop, order("ada", &[], "")).await;
    for _ in 0..6 {
        id(&send(&shop, order("ada", &[], "")).await);
    }
    let begun = Begun::now();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        done(job)
    };
    let faster = async {
        tokio::time::sleep(Duration::from_secs(61)).await;
        limiter.replace(Policy::gcra("orders", "60/min burst 1").build().unwrap(), Inherit::Spent).unwrap();
    };
    tokio::join!(work_for(&deferral, &store, 10 * MINUTE, work), faster);
    let at = begun.seconds();
    assert_eq!((at.len(), at[0]), (6, 60), "{at:?}");
    assert!(at[5] < 5 * 60, "{at:?}");

    let gone = queue(QueueSettings::default());
    let deferral = builder(&gone).build().unwrap();
    let other = MemoryStore::new();
    let shop = deferral.layer(limit("1/h", &other)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "")).await;
    let id = id(&send(&shop, order("ada", &[], "")).await);
    work_for(&deferral, &MemoryStore::new(), Duration::from_secs(1), done).await;
    assert_eq!(ask(&deferral, "ada", &id).await.1["state"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_refuses_wins_over_one_that_defers_and_each_is_spent_once() {
    let (deferral, store) = (deferral(), store());
    let strict = Policy::gcra("strict", "3/h").on(&store).unwrap();
    let strict_layer = RateLimitLayer::new(Limit::new(strict.clone()).key(HeaderKey::new("x-user").unwrap()));
    let shop = strict_layer.layer(deferral.layer(limit("1/min", &store)).layer(service_fn(echo)));
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::OK);
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::ACCEPTED);
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::ACCEPTED);
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(send(&shop, order("bob", &[], "")).await.0, StatusCode::ACCEPTED);
    // The jobs spend of the limit that deferred them, and of no other.
    work_for(&deferral, &store, 10 * MINUTE, done).await;
    assert_eq!(strict.peek("bob").await.unwrap().remaining(), 2);
}

/// Each of them once held a worker until its turn, so that four of one client stopped the jobs of all others for a day.
#[tokio::test(start_paused = true)]
async fn jobs_whose_turns_are_hours_away_hold_no_worker_and_count_no_attempts() {
    let (deferral, store) = (deferral(), store());
    let daily = Policy::gcra("daily", "10/day").on(&store).unwrap();
    let daily = Limit::new(daily).key(HeaderKey::new("x-user").unwrap());
    let daily = deferral.layer(daily).layer(service_fn(echo));
    for _ in 0..10 {
        assert_eq!(send(&daily, order("ada", &[], "")).await.0, StatusCode::OK);
    }
    let mut far = Vec::new();
    for _ in 0..6 {
        far.push(id(&send(&daily, order("ada", &[], "")).await));
    }
    let shop = deferral.layer(limit("1/min", &store)).layer(service_fn(echo));
    send(&shop, order("bob", &[], "")).await;
    let near = id(&send(&shop, order("bob", &[], "")).await);

    let begun = Begun::now();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        done(job)
    };
    work_for(&deferral, &store, Duration::from_secs(15 * 3_600), work).await;
    // No turn is lost, and none comes early.
    let each = 24 * 360;
    assert_eq!(begun.seconds(), [60, each, 2 * each, 3 * each, 4 * each, 5 * each, 6 * each]);
    let begun = begun.1.lock().unwrap();
    assert!(begun[0].0 == near && begun.iter().all(|(_, attempt, _)| *attempt == 1), "{begun:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_put_back_has_reserved_no_turn_of_any_of_its_policies() {
    let (deferral, store) = (deferral(), store());
    let minutely = Policy::gcra("minutely", "1/min").on(&store).unwrap();
    let hourly = Policy::gcra("hourly", "1/h").on(&store).unwrap();
    let [one, other] = [minutely.clone(), hourly].map(|policy| Limit::new(policy).key(Key::from("all")));
    let limits = Limits::builder(one).and(other).build().unwrap();
    let shop = DeferLayer::new(LimitsHandle::new(limits), Arc::new(deferral.clone())).layer(service_fn(echo));
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::OK);
    id(&send(&shop, order("ada", &[], "")).await);
    let begun = Begun::now();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        done(job)
    };
    let meanwhile = async {
        for _ in 0..50 {
            tokio::time::sleep(MINUTE).await;
            assert!(minutely.check("all").await.unwrap().is_allowed(), "the job waits for the other policy");
        }
    };
    tokio::join!(work_for(&deferral, &store, Duration::from_secs(3_700), work), meanwhile);
    assert_eq!(begun.seconds(), [3_600]);
}

#[tokio::test(start_paused = true)]
async fn many_jobs_of_one_key_ask_for_their_turns_one_after_the_other() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let store = around::around(store(), move |within: &Within, asks: &[Ask<'_>]| {
        count.fetch_add(1, Ordering::Relaxed);
        within.decide(asks)
    });
    let deferral = deferral();
    let shop = deferral.layer(limit("1/s", Arc::clone(&store))).layer(service_fn(echo));
    for _ in 0..=300 {
        send(&shop, order("ada", &[], "")).await;
    }
    asked.store(0, Ordering::Relaxed);
    let begun = Begun::now();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        done(job)
    };
    work_for(&deferral, store, Duration::from_secs(301), work).await;
    assert_eq!(begun.seconds(), (1..=300).collect::<Vec<_>>());
    // All at each turn would be 45,000. Here those with later turns ask once a minute.
    let asked = asked.load(Ordering::Relaxed);
    println!("{asked} questions for 300 turns");
    assert!(asked < 1_500, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_shadow_defers_nothing() {
    let (deferral, store) = (deferral(), store());
    let tried = Policy::gcra("orders", "1/h").shadow().on(&store).unwrap();
    let shop = deferral.layer(Limit::new(tried).key(Key::from("all"))).layer(service_fn(echo));
    for _ in 0..3 {
        assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_the_policy_decides_and_jobs_wait_until_it_is_over() {
    let scene = Scene::new(|resilient| resilient);
    let deferral = deferral();
    let limiter = scene.limiter(OnOutage::Deny);
    let cost = limiter.policy().quotas()[0].rule().capacity();
    let shop =
        deferral.layer(Limit::new(limiter).key(Key::from("all")).cost(cost).unwrap()).layer(service_fn(echo));
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::OK);
    let id = id(&send(&shop, order("ada", &[], "tea")).await);
    scene.mood(FAILS);
    // Not kept: it is not known whether it exceeds the limit.
    assert_eq!(send(&shop, order("ada", &[], "")).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let works = async || {
        let work = deferral.work(&scene.store, std::future::pending(), done);
        tokio::time::timeout(MINUTE, work).await.expect_err("it works until it is dropped");
        ask(&deferral, "ada", &id).await.1["state"].clone()
    };
    assert_eq!(works().await, "waiting");
    scene.mood(WORKS);
    scene.advance(3_600);
    // The breaker lets a trial through, and then the turn comes.
    let mut state = works().await;
    for _ in 0..10 {
        scene.advance(3_600);
        state = works().await;
    }
    assert_eq!(state, "done");
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_worker_that_was_dropped_is_carried_out_by_another_and_none_is_carried_out_twice() {
    let (queue, store) = (queue(QueueSettings::default()), store());
    let [one, two] = [0, 1].map(|_| builder(&queue).build().unwrap());
    let shop = one.layer(limit("100/s burst 1", &store)).layer(service_fn(echo));
    send(&shop, order("ada", &[], "")).await;
    for _ in 0..20 {
        id(&send(&shop, order("ada", &[], "")).await);
    }
    let begun = Begun::now();
    let (note, (began, amid)) = (begun.clone(), oneshot::channel());
    let began = Mutex::new(Some(began));
    let hang = move |job: Job| {
        note.note(&job);
        began.lock().unwrap().take().map(|began| began.send(()));
        std::future::pending()
    };
    tokio::select! {
        () = work_for(&one, &store, MINUTE, hang) => panic!("it hangs"),
        _ = amid => {}
    }
    let hung = begun.seconds().len();
    let note = begun.clone();
    let work = move |job: Job| {
        note.note(&job);
        done(job)
    };
    tokio::join!(work_for(&one, &store, MINUTE, work.clone()), work_for(&two, &store, MINUTE, work));
    assert_eq!(begun.seconds().len(), 20 + hung);
}

#[tokio::test(start_paused = true)]
async fn jobs_and_results_are_opened_by_both_secrets_and_by_no_other() {
    let (queue, store) = (queue(QueueSettings::default().attempts(1)), store());
    let with = |own: &str, other: Option<&str>| {
        let builder = Deferral::builder(queue.clone(), HeaderKey::new("x-user").unwrap(), own);
        other.into_iter().fold(builder, DeferralBuilder::other_secret).build().unwrap()
    };
    let next = "the secret of next year, which is long";
    let (old, both, new) = (with(SECRET, None), with(next, Some(SECRET)), with(next, None));
    let shop = |deferral: &Deferral| deferral.layer(limit("1/s", &store)).layer(service_fn(echo));
    let _open = shop(&old);
    send(&shop(&old), order("ada", &[], "")).await;
    let once = [("idempotency-key", "k")];
    let first = id(&send(&shop(&old), order("ada", &once, "tea")).await);
    assert_eq!(id(&send(&shop(&both), order("ada", &once, "tea")).await), first);
    assert_eq!(ask(&new, "ada", &first).await.0, StatusCode::NOT_FOUND);
    work_for(&new, &store, MINUTE, done).await;
    assert_eq!(ask(&old, "ada", &first).await.1["state"], "parked");
    old.unpark().await.unwrap();
    work_for(&both, &store, MINUTE, done).await;
    assert_eq!(ask(&both, "ada", &first).await.1["result"], "tea");
}

#[tokio::test(start_paused = true)]
async fn only_the_fields_on_the_list_are_kept() {
    let store = store();
    let fields = [("cookie", "c"), ("authorization", "a"), ("x-note", "n"), ("content-type", "t")];
    for (names, kept) in [(None, vec!["content-type"]), (Some("x-note"), vec!["x-note"])] {
        let queue = queue(QueueSettings::default());
        let mut builder = builder(&queue);
        if let Some(name) = names {
            builder = builder.keep_headers([HeaderName::from_static(name)]);
        }
        let deferral = builder.build().unwrap();
        let shop = deferral.layer(limit("1/s", &store)).layer(service_fn(echo));
        while send(&shop, order("ada", &fields, "")).await.0 == StatusCode::OK {}
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&seen);
        let work = move |job: Job| {
            note.lock().unwrap().extend(job.request.headers().keys().map(HeaderName::to_string));
            done(job)
        };
        work_for(&deferral, &store, MINUTE, work).await;
        assert_eq!(*seen.lock().unwrap(), kept);
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_value() {
    let base = QueueSettings::default();
    for (settings, problem) in [
        (base.most_jobs(0), "a queue of at most 0 jobs would keep none: use 1 or more"),
        (base.at_once(0), "a queue with 0 jobs at once would carry out no job: use 1 or more"),
        (base.attempts(0), "a queue with 0 attempts would carry out no job: use 1 or more"),
        (
            base.results_last(Duration::ZERO),
            "a result that lasts 0ns could not be asked for: use 1 s or more",
        ),
        (
            base.lease(Duration::from_millis(99)),
            "a lease of 99ms would take jobs from workers that are alive: use 1 s or more",
        ),
    ] {
        assert_eq!(MemoryJobs::new(settings).unwrap_err().to_string(), problem);
    }
    let queue = queue(base);
    let user = || HeaderKey::new("x-user").unwrap();
    let short = Deferral::builder(queue.clone(), user(), "fifteen bytes!!").build().unwrap_err().to_string();
    assert_eq!(short, "a secret of 15 bytes for deferred jobs: use at least 16");
    for path in ["jobs", "/jobs/", "/jobs?x", ""] {
        let error = builder(&queue).jobs_at(path).build().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path:?} is no path for jobs")), "{error}");
    }
}
