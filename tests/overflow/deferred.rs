//! Deferred jobs on a real Redis: the queue alone, and a service with its layer.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use sluicegate::key::HeaderKey;
use sluicegate::overflow::deferred::{
    Deferral, Job, JobOutcome, JobQueue, Pushed, QueueSettings, QueuedJob, RedisJobs,
};
use sluicegate::{Key, Limit, MemoryStore, OnOutage, Policy, RedisStore};
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::persistent::Persistent;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::overflow::support::store;

pub(crate) const SECRET: &str = "a secret of sixteen bytes, or more";

/// Settings under which jobs that were let go of are soon handed out again.
pub(crate) fn quick() -> QueueSettings {
    QueueSettings::default().lease(Duration::from_secs(1)).attempts(2)
}

pub(crate) fn deferral(url: &str, settings: QueueSettings) -> Deferral {
    let queue = RedisJobs::connect(url, "orders", settings).unwrap();
    Deferral::builder(queue, HeaderKey::new("x-user").unwrap(), SECRET).build().unwrap()
}

pub(crate) fn limit(quota: &str, store: &RedisStore) -> Limit {
    let policy = Policy::gcra("orders", quota).on_outage(OnOutage::Deny).on(store).unwrap();
    Limit::new(policy).key(Key::from("all"))
}

pub(crate) async fn echo(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(request.into_body()))
}

pub(crate) fn order(fields: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let request = Request::post("/orders?q=MARK-query").header("x-user", "ada");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

/// The status, and the id of the job if the request was kept.
pub(crate) async fn send<S>(service: &S, request: Request<Full<Bytes>>) -> (StatusCode, String)
where
    S: Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone,
{
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (status, body["id"].as_str().unwrap_or_default().to_owned())
}

pub(crate) async fn ask(deferral: &Deferral, id: &str) -> Value {
    let request = Request::get(format!("/jobs/{id}")).header("x-user", "ada").body(()).unwrap();
    serde_json::from_slice(deferral.answer(&request).await.body()).unwrap()
}

async fn is_known(url: &str, id: &str) -> bool {
    RedisJobs::connect(url, "orders", quick()).unwrap().look_up(id).await.unwrap().is_some()
}

/// Works until each of these jobs is in this state.
async fn work_until<F>(
    deferral: &Deferral,
    store: &RedisStore,
    ids: &[String],
    state: &str,
    work: impl Fn(Job) -> F + Send + Sync + 'static,
) where
    F: Future<Output = JobOutcome> + Send + 'static,
{
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let ended = async {
        for id in ids {
            while ask(deferral, id).await["state"] != state {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        stop.send(()).unwrap();
    };
    let works = deferral.work(store, async { _ = stopped.await }, work);
    let both = async { tokio::join!(works, ended) };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("the jobs come to their ends");
}

async fn done(job: Job) -> JobOutcome {
    Ok(job.request.into_body().to_vec())
}

#[tokio::test]
async fn two_instances_on_one_queue_carry_out_each_job_once_at_the_pace_of_both() {
    let server = Server::start();
    let (url, settings) = (server.url(), QueueSettings::default());
    let store = store(&url).await;
    let [one, two] = [0, 1].map(|_| deferral(&url, settings));
    let shop = one.layer(limit("20/s burst 1", &store)).layer(service_fn(echo));
    assert_eq!(send(&shop, order(&[], "")).await.0, StatusCode::OK);
    let mut ids = Vec::new();
    while ids.len() < 30 {
        let (status, id) = send(&shop, order(&[], "tea")).await;
        ids.extend((status == StatusCode::ACCEPTED).then_some(id));
    }
    let begun = Arc::new(Mutex::new(Vec::new()));
    let work = |begun: &Arc<Mutex<Vec<String>>>| {
        let begun = Arc::clone(begun);
        move |job: Job| {
            begun.lock().unwrap().push(job.id.clone());
            done(job)
        }
    };
    let (first, second) = (work(&begun), work(&begun));
    tokio::join!(
        work_until(&one, &store, &ids, "done", first),
        work_until(&two, &store, &ids, "done", second)
    );
    let mut begun = std::mem::take(&mut *begun.lock().unwrap());
    begun.sort_unstable();
    ids.sort_unstable();
    assert_eq!(begun, ids);
    assert_eq!(ask(&two, &ids[0]).await["result"], "tea");
}

#[tokio::test]
async fn one_idempotency_key_at_two_instances_at_once_is_one_job_before_and_after_it_is_done() {
    let server = Server::start();
    let url = server.url();
    let store = store(&url).await;
    let [one, two] = [0, 1].map(|_| deferral(&url, quick()));
    let shop = |deferral: &Deferral| deferral.layer(limit("1/h", &store)).layer(service_fn(echo));
    let (one_shop, two_shop) = (shop(&one), shop(&two));
    send(&one_shop, order(&[], "")).await;
    for key in ["1", "2", "3"] {
        let once = [("idempotency-key", key)];
        let (first, second) =
            tokio::join!(send(&one_shop, order(&once, "tea")), send(&two_shop, order(&once, "tea")));
        assert_eq!((first.0, &first), (StatusCode::ACCEPTED, &second));
        assert_eq!(send(&one_shop, order(&once, "coffee")).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let once = [("idempotency-key", "1")];
    let (_, id) = send(&one_shop, order(&once, "tea")).await;
    drop((one_shop, two_shop));
    // No handle to the policy is left, so the jobs need no turn.
    work_until(&two, &store, std::slice::from_ref(&id), "done", done).await;
    assert_eq!(send(&shop(&two), order(&once, "tea")).await, (StatusCode::ACCEPTED, id));
    assert_eq!(send(&shop(&two), order(&once, "coffee")).await.0, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_job_that_fails_is_parked_and_once_put_back_it_is_tried_once_more() {
    // Under the second, each attempt is put back until a later turn.
    tokio::join!(fails_and_is_parked("100/s burst 1"), fails_and_is_parked("20/min burst 1"));
}

async fn fails_and_is_parked(quota: &str) {
    let server = Server::start();
    let url = server.url();
    let store = store(&url).await;
    let deferral = deferral(&url, quick());
    let shop = deferral.layer(limit(quota, &store)).layer(service_fn(echo));
    let mut id = String::new();
    while id.is_empty() {
        id = send(&shop, order(&[], "tea")).await.1;
    }
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let fails = |attempts: &Arc<Mutex<Vec<u32>>>| {
        let attempts = Arc::clone(attempts);
        move |job: Job| {
            attempts.lock().unwrap().push(job.attempt);
            async { Err("it cannot be done".into()) }
        }
    };
    let ids = std::slice::from_ref(&id);
    work_until(&deferral, &store, ids, "parked", fails(&attempts)).await;
    assert!(is_known(&url, &id).await);
    assert_eq!(deferral.unpark().await.unwrap(), 1);
    assert_eq!(ask(&deferral, &id).await["state"], "waiting");
    work_until(&deferral, &store, ids, "parked", fails(&attempts)).await;
    assert_eq!(*attempts.lock().unwrap(), [1, 2, 2]);
    assert_eq!(deferral.unpark().await.unwrap(), 1);
    work_until(&deferral, &store, ids, "done", done).await;
    assert_eq!(ask(&deferral, &id).await["result"], "tea");
}

/// Notes the ids and attempts of jobs.
fn noting(begun: &Arc<Mutex<Vec<(String, u32)>>>) -> impl Fn(Job) -> std::future::Ready<JobOutcome> + use<> {
    let begun = Arc::clone(begun);
    move |job: Job| {
        begun.lock().unwrap().push((job.id, job.attempt));
        std::future::ready(Ok(Vec::new()))
    }
}

/// A job once held its worker until its turn, however far away.
#[tokio::test]
async fn jobs_with_later_turns_hold_no_worker_and_count_no_attempts() {
    let server = Server::start();
    let url = server.url();
    let store = store(&url).await;
    let deferral = deferral(&url, quick().at_once(1).attempts(1));
    let later = deferral.layer(limit("20/min burst 1", &store)).layer(service_fn(echo));
    let mut ids = Vec::new();
    for _ in 0..3 {
        let (status, id) = send(&later, order(&[], "tea")).await;
        ids.extend((status == StatusCode::ACCEPTED).then_some(id));
    }
    // This policy has no handle when the job asks, so it needs no turn.
    let soon = Policy::gcra("soon", "1/h").on(&store).unwrap();
    let soon = deferral.layer(Limit::new(soon).key(Key::from("all"))).layer(service_fn(echo));
    send(&soon, order(&[], "")).await;
    let (_, next) = send(&soon, order(&[], "")).await;
    drop(soon);
    let begun = Arc::default();
    ids.push(next.clone());
    work_until(&deferral, &store, &ids, "done", noting(&begun)).await;
    let begun = begun.lock().unwrap();
    assert_eq!((ids.len(), begun.len(), &begun[0]), (3, 3, &(next, 1)));
    assert!(begun.iter().all(|(_, attempt)| *attempt == 1), "{begun:?}");
}

/// The worker died after it had put the job back, and before oxana forgot the job's former name.
#[tokio::test]
async fn a_copy_of_a_job_that_was_put_back_is_not_carried_out() {
    let server = Server::start();
    let url = server.url();
    let store = store(&url).await;
    let deferral = deferral(&url, quick());
    let shop = deferral.layer(limit("20/min burst 1", &store)).layer(service_fn(echo));
    let mut id = String::new();
    while id.is_empty() {
        id = send(&shop, order(&[], "tea")).await.1;
    }
    let (jobs, queue) = ("sluicegate-deferred:orders:jobs", "sluicegate-deferred:orders:queue:jobs");
    let copy: String = server.run(&format!("HGET {jobs} deferred/{id}"));
    let died = async {
        while server.run::<Vec<String>>(&format!("HKEYS {jobs}")) != [format!("deferred/{id}+")] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(is_known(&url, &id).await);
        server.run::<()>(&format!("HSET {jobs} deferred/{id} {copy}"));
        server.run::<()>(&format!("LPUSH {queue} deferred/{id}"));
    };
    let begun = Arc::default();
    tokio::join!(work_until(&deferral, &store, std::slice::from_ref(&id), "done", noting(&begun)), died);
    assert_eq!(*begun.lock().unwrap(), [(id, 1)]);
    assert_eq!(server.run::<u32>(&format!("HLEN {jobs}")), 0);
}

#[tokio::test]
async fn a_queue_that_is_full_takes_no_job_and_knows_those_that_it_has() {
    let server = Server::start();
    let queue = RedisJobs::connect(&server.url(), "orders", QueueSettings::default().most_jobs(1)).unwrap();
    let job = |id: &str| QueuedJob::new(id, vec![1], vec![2]).that_may_be_known();
    assert_eq!(queue.push(job("a")).await.unwrap(), Pushed::Kept);
    assert_eq!(queue.push(job("b")).await.unwrap(), Pushed::Full);
    assert!(matches!(queue.push(job("a")).await.unwrap(), Pushed::Known(record) if record.label == [1]));
    assert_eq!(queue.look_up("b").await.unwrap(), None);
    let lives: Vec<String> = server.run("KEYS *");
    assert!(lives.iter().all(|key| key.starts_with("sluicegate-deferred:orders:")), "{lives:?}");
}

#[tokio::test]
async fn a_result_is_kept_for_its_time() {
    let server = Server::start();
    let url = server.url();
    let store = store(&url).await;
    let deferral = deferral(&url, quick().results_last(Duration::from_secs(1)));
    let shop = deferral.layer(limit("1/h", &store)).layer(service_fn(echo));
    send(&shop, order(&[], "")).await;
    let (_, id) = send(&shop, order(&[], "tea")).await;
    drop(shop);
    work_until(&deferral, &store, std::slice::from_ref(&id), "done", done).await;
    while ask(&deferral, &id).await["status"] != 404 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let left: Vec<String> = server.run("KEYS *:record:*");
    assert!(left.is_empty(), "{left:?}");
    assert!(!is_known(&url, &id).await);
}

#[tokio::test]
async fn nothing_that_a_client_sent_is_readable_in_redis() {
    let redis = Persistent::start("always");
    let url = redis.server.url();
    let store = store(&url).await;
    let deferral = deferral(&url, quick());
    let shop = deferral.layer(limit("1/h", &store)).layer(service_fn(echo));
    let fields = [("content-type", "MARK-type"), ("idempotency-key", "MARK-key"), ("cookie", "MARK-cookie")];
    send(&shop, order(&[], "")).await;
    let (status, id) = send(&shop, order(&fields, "MARK-body")).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    drop(shop);
    work_until(&deferral, &store, std::slice::from_ref(&id), "done", done).await;
    assert_eq!(ask(&deferral, &id).await["result"], "MARK-body");
    assert!(is_known(&url, &id).await);
    let written = redis.written();
    let marks = written.windows(5).filter(|bytes| bytes == b"MARK-").count();
    assert_eq!((marks, written.len() > 1_000), (0, true));
}

#[tokio::test]
async fn without_redis_a_request_is_refused_with_503_and_work_goes_on_when_it_is_back() {
    let mut redis = Persistent::start("always");
    let url = redis.server.url();
    let store = store(&url).await;
    let deferral = deferral(&url, quick());
    let shop = deferral.layer(limit("1/s", &store)).layer(service_fn(echo));
    let mut id = String::new();
    while id.is_empty() {
        id = send(&shop, order(&[], "tea")).await.1;
    }
    let outage = async {
        redis.server.stop();
        // By the limit, and, where that is in memory, by the queue.
        assert_eq!(send(&shop, order(&[], "tea")).await.0, StatusCode::SERVICE_UNAVAILABLE);
        let limit = Limit::new(Policy::gcra("orders", "1/h").on(MemoryStore::new()).unwrap());
        let memory = deferral.layer(limit.key(Key::from("all"))).layer(service_fn(echo));
        assert_eq!(send(&memory, order(&[], "")).await.0, StatusCode::OK);
        assert_eq!(send(&memory, order(&[], "")).await.0, StatusCode::SERVICE_UNAVAILABLE);
        let once = [("idempotency-key", "k")];
        assert_eq!(send(&memory, order(&once, "")).await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(&deferral, &id).await["status"], 503);
        redis.server.restart();
    };
    tokio::join!(work_until(&deferral, &store, std::slice::from_ref(&id), "done", done), outage);
}

#[test]
fn what_cannot_be_a_queue_is_refused_with_the_value_and_without_the_url() {
    let settings = QueueSettings::default();
    let error = RedisJobs::connect("redis://127.0.0.1", "a b", settings).unwrap_err().to_string();
    assert_eq!(error, "\"a b\" is no name of a queue: use 1 to 64 letters, digits, \".\", \"_\" and \"-\"");
    let error = RedisJobs::connect("postgres://u:pass@h", "a", settings).unwrap_err().to_string();
    assert!(error.starts_with("the URL of the Redis for deferred jobs cannot be read"), "{error}");
    assert!(!error.contains("pass"), "{error}");
}
