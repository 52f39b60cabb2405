//! The example `deferred`, in one process, on real servers.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use sluicegate::Key;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::persistent::Persistent;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::deferred_example::job::Job;
use crate::deferred_example::queue::{Acceptance, Cursor, Queue, Settings, Standing, Taken};
use crate::deferred_example::seal::Seal;
use crate::deferred_example::worker::{Outcome, work};
use crate::deferred_example::{service, turns};
use crate::support::{SECRET, order, queue, store};

/// Settings under which a job that was let go of is soon handed out again.
fn quick() -> Settings {
    Settings { lease: Duration::from_millis(200), attempts: 2, ..Settings::default() }
}

async fn id_of(queue: &Queue, owner: &Key, body: &str) -> String {
    match queue.accept(owner, None, &order(body)).await.unwrap() {
        Acceptance::Accepted(id) => id,
        other => panic!("{other:?}"),
    }
}

async fn taken(queue: &Queue, cursor: &mut Cursor) -> Taken {
    let wait = async {
        loop {
            if let Some(taken) = queue.take(cursor).await.unwrap() {
                return taken;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("there is a job")
}

/// The answer of the service, with its body as JSON.
async fn send(app: &Router, request: Request<Body>) -> Response<Value> {
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(head, serde_json::from_slice(&body).unwrap())
}

fn post(api_key: &str, fields: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let request = Request::post("/orders").header("x-api-key", api_key);
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(body.into()).unwrap()
}

fn get(api_key: &str, path: &str) -> Request<Body> {
    Request::get(path).header("x-api-key", api_key).body(Body::empty()).unwrap()
}

/// Works with `carry_out` until each of these jobs stands like this.
async fn work_until<W, F>(
    queue: &Arc<Queue>,
    server: &Server,
    carry_out: W,
    owner: &Key,
    ends: &[(impl AsRef<str>, Standing)],
) where
    W: Fn(Job) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    let turns = turns(&store(&server.url()).await, "1000/s").unwrap();
    let (stop, stopped) = watch::channel(false);
    let ended = async {
        for (id, end) in ends {
            while queue.ask(owner, id.as_ref()).await.unwrap().as_ref() != Some(end) {
                tokio::task::yield_now().await;
            }
        }
        stop.send_replace(true);
    };
    let both = async { tokio::join!(work(queue, &turns, stopped, carry_out), ended) };
    tokio::time::timeout(Duration::from_secs(30), both).await.expect("the jobs come to their ends");
}

#[tokio::test]
async fn a_request_is_accepted_with_a_place_where_its_owner_asks_and_nobody_else() {
    let server = Server::start();
    let queue = queue(&server, quick()).await;
    let app = service::app(Arc::clone(&queue));
    let accepted = send(&app, post("ada", &[("content-type", "text/plain")], "tea")).await;
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    assert_eq!(accepted.headers()["cache-control"], "no-store");
    let place = accepted.headers()["location"].to_str().unwrap();
    let id = place.strip_prefix("/jobs/").unwrap();
    assert_eq!((id.len(), accepted.body()["id"].as_str()), (32, Some(id)));

    let asked = send(&app, get("ada", place)).await;
    assert_eq!((asked.status(), &asked.body()["state"]), (StatusCode::OK, &Value::from("waiting")));
    let carry_out = async |job: Job| -> Outcome {
        assert_eq!(job.request.headers()["content-type"], "text/plain");
        Ok(job.request.into_body().to_vec())
    };
    let done = Standing::Done(b"tea".to_vec());
    let boxed = move |job| Box::pin(carry_out(job)) as Pin<Box<dyn Future<Output = Outcome> + Send>>;
    work_until(&queue, &server, boxed, &Key::from("ada"), &[(id, done)]).await;
    let asked = send(&app, get("ada", place)).await;
    assert_eq!(
        (&asked.body()["state"], &asked.body()["result"]),
        (&Value::from("done"), &Value::from("tea"))
    );

    let nowhere = format!("/jobs/{}", "0".repeat(32));
    for (who, path) in [("bob", place), ("ada", &nowhere), ("ada", "/jobs/x"), ("ada", "/jobs/*")] {
        let refused = send(&app, get(who, path)).await;
        assert_eq!(refused.status(), StatusCode::NOT_FOUND, "{who} {path}");
        assert_eq!(refused.body()["detail"], "there is no such job");
    }
    let nobody = Request::get(place).body(Body::empty()).unwrap();
    assert_eq!(send(&app, nobody).await.status(), StatusCode::UNAUTHORIZED);
    let twice = post("ada", &[("x-api-key", "bob")], "");
    assert_eq!(send(&app, twice).await.status(), StatusCode::BAD_REQUEST);
    let long = post(&"a".repeat(256), &[], "");
    assert_eq!(send(&app, long).await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_idempotency_key_is_one_job_for_its_owner_and_its_request() {
    let server = Server::start();
    let queue = queue(&server, Settings { most: 3, ..quick() }).await;
    let app = service::app(Arc::clone(&queue));
    let once = [("idempotency-key", "\"8e03978e\"")];
    let many = (0..16).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, post("ada", &once, "tea")).await })
    });
    let mut places = HashSet::new();
    for answer in many.collect::<Vec<_>>() {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        places.insert(answer.headers()["location"].clone());
    }
    assert_eq!(places.len(), 1);

    let other = send(&app, post("ada", &once, "coffee")).await;
    assert_eq!(other.status(), StatusCode::UNPROCESSABLE_ENTITY);
    // It is another's key, although it has the same name.
    let bobs = send(&app, post("bob", &once, "tea")).await;
    assert!(bobs.status() == StatusCode::ACCEPTED && !places.contains(&bobs.headers()["location"]));
    assert_eq!(send(&app, post("ada", &[], "tea")).await.status(), StatusCode::ACCEPTED);
    // Full, but what was accepted is accepted, with and without the quotes.
    assert_eq!(send(&app, post("ada", &[], "tea")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    let again = send(&app, post("ada", &[("idempotency-key", "8e03978e")], "tea")).await;
    assert!(places.contains(&again.headers()["location"]), "{again:?}");
    for bad in ["", &"k".repeat(256)] {
        let refused = send(&app, post("ada", &[("idempotency-key", bad)], "tea")).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{bad:?}");
    }
}

#[tokio::test]
async fn a_full_stream_refuses_and_trims_nothing() {
    let server = Server::start();
    let queue = queue(&server, Settings { most: 5, attempts: 1, ..quick() }).await;
    let ada = Key::from("ada");
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(id_of(&queue, &ada, &number.to_string()).await);
    }
    let app = service::app(Arc::clone(&queue));
    let refused = send(&app, post("ada", &[], "one more")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    // A job in hand and one that is parked take room as before, one that is done takes none.
    let mut cursor = Cursor::default();
    let first = taken(&queue, &mut cursor).await;
    assert!(queue.fail(&first).await.unwrap());
    assert_eq!(queue.ask(&ada, &ids[0]).await.unwrap(), Some(Standing::Parked));
    let second = taken(&queue, &mut cursor).await;
    assert_eq!(queue.accept(&ada, None, &order("x")).await.unwrap(), Acceptance::Full);
    assert!(queue.finish(&second, b"").await.unwrap());
    ids[1] = id_of(&queue, &ada, "1 again").await;
    assert_eq!(queue.accept(&ada, None, &order("x")).await.unwrap(), Acceptance::Full);
    // All of them come, and the one that was parked last, once it is put back.
    assert_eq!(queue.unpark(10).await.unwrap(), 1);
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let taken = taken(&queue, &mut cursor).await;
        bodies.push(queue.open(&taken).unwrap().request.into_body());
        assert!(queue.finish(&taken, b"").await.unwrap());
    }
    assert_eq!(bodies, ["2", "3", "4", "1 again", "0"]);
}

#[tokio::test]
async fn a_job_that_fails_or_panics_each_time_is_parked_and_holds_up_no_other() {
    let server = Server::start();
    let queue = queue(&server, quick()).await;
    let ada = Key::from("ada");
    let failing = id_of(&queue, &ada, "fails").await;
    let panicking = id_of(&queue, &ada, "panics").await;
    let mut ends = Vec::new();
    for number in 0..20 {
        ends.push((id_of(&queue, &ada, &number.to_string()).await, Standing::Done(b"well".to_vec())));
    }
    ends.extend([(failing.clone(), Standing::Parked), (panicking.clone(), Standing::Parked)]);
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let tried = Arc::clone(&attempts);
    let carry_out = move |job: Job| {
        tried.lock().unwrap().push((job.id.clone(), job.attempt));
        async move {
            match &job.request.body()[..] {
                b"fails" => Err("it fails".into()),
                b"panics" => panic!("it panics"),
                _ => Ok(b"well".to_vec()),
            }
        }
    };
    work_until(&queue, &server, carry_out, &ada, &ends).await;
    let attempts = attempts.lock().unwrap();
    for id in [failing, panicking] {
        let at = |attempt| attempts.iter().position(|tried| *tried == (id.clone(), attempt)).unwrap();
        assert!(at(1) < 2 && at(2) >= 2, "{attempts:?}");
    }
    assert_eq!(attempts.len(), 24);
}

#[tokio::test]
async fn a_worker_that_was_silent_for_a_lease_has_lost_its_job_and_its_result_is_dropped() {
    let server = Server::start();
    let queue = queue(&server, quick()).await;
    let ada = Key::from("ada");
    let id = id_of(&queue, &ada, "tea").await;
    let (mut one, mut other) = (Cursor::default(), Cursor::default());
    let first = taken(&queue, &mut one).await;
    assert!(queue.hold(&first).await.unwrap());
    let second = taken(&queue, &mut other).await;
    assert_eq!(queue.open(&second).unwrap().attempt, 2);
    assert!(!queue.hold(&first).await.unwrap() && !queue.fail(&first).await.unwrap());
    assert!(!queue.finish(&first, b"late").await.unwrap());
    assert!(queue.finish(&second, b"well").await.unwrap());
    assert!(!queue.finish(&second, b"twice").await.unwrap());
    assert_eq!(queue.ask(&ada, &id).await.unwrap(), Some(Standing::Done(b"well".to_vec())));
}

/// A job whose worker dies with it, each time.
#[tokio::test]
async fn a_job_that_no_worker_survives_is_parked() {
    let server = Server::start();
    let queue = queue(&server, quick()).await;
    let ada = Key::from("ada");
    let id = id_of(&queue, &ada, "deadly").await;
    let mut cursor = Cursor::default();
    drop(taken(&queue, &mut cursor).await);
    drop(taken(&queue, &mut cursor).await);
    let parked = async {
        while queue.ask(&ada, &id).await.unwrap() != Some(Standing::Parked) {
            assert!(queue.take(&mut cursor).await.unwrap().is_none());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), parked).await.expect("its lease is over soon");
}

/// A body that says whether anybody has read it.
struct Watched(Arc<AtomicBool>, Option<Bytes>);

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.store(true, Ordering::Relaxed);
        Poll::Ready(self.1.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

#[tokio::test]
async fn a_body_above_the_bound_is_refused_before_it_is_read_or_as_soon_as_it_is_too_long() {
    let server = Server::start();
    let app = service::app(queue(&server, Settings { most_body: 100, ..quick() }).await);
    for (length, said, status, is_read) in [
        (100, true, StatusCode::ACCEPTED, true),
        (100, false, StatusCode::ACCEPTED, true),
        (101, true, StatusCode::PAYLOAD_TOO_LARGE, false),
        (101, false, StatusCode::PAYLOAD_TOO_LARGE, true),
    ] {
        let read = Arc::new(AtomicBool::new(false));
        let body = Body::new(Watched(Arc::clone(&read), Some(vec![b'x'; length].into())));
        let said = said.then(|| length.to_string());
        let fields: Vec<_> = said.iter().map(|length| ("content-length", length.as_str())).collect();
        let answer = send(&app, post("ada", &fields, body)).await;
        assert_eq!((answer.status(), read.load(Ordering::Relaxed)), (status, is_read), "{length} {fields:?}");
    }
    let long = Request::post(format!("/orders?{}", "x".repeat(8_200))).header("x-api-key", "ada");
    let refused = send(&app, long.body(Body::empty()).unwrap()).await;
    assert_eq!(refused.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

/// A whole life of a job in which everything that a client sends and gets has a mark.
async fn marked(server: &Server, seal: Seal) {
    let settings = Settings { kept: vec![http::HeaderName::from_static("x-note")], ..quick() };
    let queue = Arc::new(Queue::new(&store(&server.url()).await, "orders", seal, settings).unwrap());
    let app = service::app(Arc::clone(&queue));
    let fields = [("idempotency-key", "MARK-once"), ("x-note", "MARK-note"), ("cookie", "MARK-cookie")];
    let request = |body: &'static str| {
        let mut request = post("MARK-owner", &fields, body);
        *request.uri_mut() = "/orders?q=MARK-query".parse().unwrap();
        request
    };
    assert_eq!(send(&app, request("MARK-body")).await.status(), StatusCode::ACCEPTED);
    assert_eq!(send(&app, request("MARK-other")).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let taken = taken(&queue, &mut Cursor::default()).await;
    let job = queue.open(&taken).unwrap();
    assert_eq!(
        (job.request.uri().to_string().as_str(), &job.request.headers()["x-note"]),
        ("/orders?q=MARK-query", &http::HeaderValue::from_static("MARK-note"))
    );
    assert!(!job.request.headers().contains_key("cookie"));
    queue.finish(&taken, b"MARK-result").await.unwrap();
}

#[tokio::test]
async fn nothing_that_a_client_sent_is_readable_in_redis_unless_that_was_chosen_by_name() {
    let marks = |redis: &Persistent| redis.written().windows(5).filter(|bytes| bytes == b"MARK-").count();
    let redis = Persistent::start("always");
    marked(&redis.server, Seal::with_secret(SECRET).unwrap()).await;
    assert!(redis.written().len() > 500);
    assert_eq!(marks(&redis), 0);
    let redis = Persistent::start("always");
    marked(&redis.server, Seal::in_clear()).await;
    // Query, note and body, and the result; owners and keys are digests all the same, and a cookie was not on the list.
    assert!(marks(&redis) >= 4, "{}", marks(&redis));
    let error = Seal::with_secret("fifteen bytes!!").unwrap_err().to_string();
    assert_eq!(error, "a secret of 15 bytes: use at least 16");
}

#[tokio::test]
async fn a_job_of_another_secret_cannot_be_read_or_swapped_and_is_not_lost() {
    let server = Server::start();
    let queue = queue(&server, quick()).await;
    let ada = Key::from("ada");
    let id = id_of(&queue, &ada, "tea").await;
    let seal = Seal::with_secret("another secret of the application").unwrap();
    let strange = Queue::new(&store(&server.url()).await, "orders", seal, quick()).unwrap();
    assert_eq!(strange.ask(&ada, &id).await.unwrap(), None);
    let mut cursor = Cursor::default();
    for _ in 0..2 {
        let taken = taken(&strange, &mut cursor).await;
        assert!(strange.open(&taken).is_none());
        strange.fail(&taken).await.unwrap();
    }
    assert_eq!(queue.ask(&ada, &id).await.unwrap(), Some(Standing::Parked));
    assert_eq!(queue.unpark(1).await.unwrap(), 1);
    let taken = taken(&queue, &mut cursor).await;
    assert_eq!(queue.open(&taken).unwrap().id, id);
    // What is sealed for one job opens as no other, nor as a result.
    let seal = Seal::with_secret(SECRET).unwrap();
    let sealed = seal.seal("job 1", b"tea");
    assert_eq!(seal.open("job 1", &sealed).as_deref(), Some(&b"tea"[..]));
    for purpose in ["job 2", "result 1"] {
        assert_eq!(seal.open(purpose, &sealed), None);
    }
    assert_eq!(seal.open("job 1", b"short"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_change_in_steps_over_two_instances_and_every_job_owner_and_idempotency_key_goes_on() {
    let (server, ada, new) = (Server::start(), Key::from("ada"), "the secret of next year, which is long");
    let seal = |own: &str, other: Option<&str>| {
        let seal = Seal::with_secret(own).unwrap();
        other.into_iter().fold(seal, |seal, other| seal.and_opens(other).unwrap())
    };
    let store = store(&server.url()).await;
    let queue = |seal| Queue::new(&store, "orders", seal, quick()).unwrap();
    let before = queue(seal(SECRET, None));
    let Acceptance::Accepted(first) = before.accept(&ada, Some("1"), &order("tea")).await.unwrap() else {
        panic!()
    };

    // One of two instances is a step ahead: each opens what the other seals, and sees what the other has accepted.
    let steps = [
        [seal(SECRET, None), seal(SECRET, Some(new))],
        [seal(SECRET, Some(new)), seal(new, Some(SECRET))],
        [seal(new, Some(SECRET)), seal(new, Some(SECRET))],
    ];
    for (step, seals) in steps.into_iter().enumerate() {
        let [behind, ahead] = seals.map(queue);
        for (one, other) in [(&behind, &ahead), (&ahead, &behind)] {
            let known = one.accept(&ada, Some("1"), &order("tea")).await.unwrap();
            assert_eq!(known, Acceptance::Repeated(first.clone()), "step {step}");
            let differs = one.accept(&ada, Some("1"), &order("coffee")).await.unwrap();
            assert_eq!(differs, Acceptance::Other, "step {step}");
            let once = format!("{step} {:p}", one);
            let Acceptance::Accepted(id) = one.accept(&ada, Some(&once), &order(&once)).await.unwrap() else {
                panic!()
            };
            let again = other.accept(&ada, Some(&once), &order(&once)).await.unwrap();
            assert_eq!(again, Acceptance::Repeated(id.clone()), "step {step}");
            // Jobs come in their order: the first one is still there in the first round.
            let mut cursor = Cursor::default();
            while other.ask(&ada, &id).await.unwrap() == Some(Standing::Waiting) {
                let taken = taken(other, &mut cursor).await;
                let job = other.open(&taken).expect("it opens what the other has sealed");
                assert!(other.finish(&taken, job.request.body()).await.unwrap());
            }
            assert_eq!(
                one.ask(&ada, &id).await.unwrap(),
                Some(Standing::Done(once.into_bytes())),
                "step {step}"
            );
            assert_eq!(one.ask(&Key::from("bob"), &id).await.unwrap(), None);
        }
    }
    let error = Seal::with_secret(SECRET).unwrap().and_opens("fifteen bytes!!").unwrap_err().to_string();
    assert!(error.contains("a secret of 15 bytes"), "{error}");
}

#[tokio::test]
async fn a_record_stays_while_its_job_waits_and_for_its_time_once_it_is_done() {
    let server = Server::start();
    let stays = Duration::from_secs(1);
    let queue = queue(&server, Settings { stays, ..quick() }).await;
    let ada = Key::from("ada");
    let accepted = queue.accept(&ada, Some("once"), &order("tea")).await.unwrap();
    let Acceptance::Accepted(id) = accepted else { panic!("{accepted:?}") };
    let lives = || {
        let keys: Vec<String> = server.run("KEYS *");
        let lives = keys.iter().filter(|key| key.contains(":job:") || key.contains(":once:"));
        lives.map(|key| server.run::<i64>(&format!("PTTL {key}"))).collect::<Vec<_>>()
    };
    assert_eq!(lives(), [-1, -1]);
    let taken = taken(&queue, &mut Cursor::default()).await;
    queue.finish(&taken, b"well").await.unwrap();
    assert!(lives().iter().all(|left| (1..=1_000).contains(left)), "{:?}", lives());
    let gone = async { while queue.ask(&ada, &id).await.unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("it expires");
    // Known no longer, so it is another job.
    let again = queue.accept(&ada, Some("once"), &order("tea")).await.unwrap();
    assert!(matches!(again, Acceptance::Accepted(other) if other != id));
}

#[tokio::test]
async fn without_redis_a_request_is_refused_with_503_and_work_goes_on_when_it_is_back() {
    let mut redis = Persistent::start("always");
    let queue = queue(&redis.server, quick()).await;
    let app = service::app(Arc::clone(&queue));
    let ada = Key::from("ada");
    let id = id_of(&queue, &ada, "tea").await;
    redis.server.stop();
    let refused = send(&app, post("ada", &[], "tea")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"), "{refused:?}");
    redis.server.restart();
    let back = store(&redis.server.url()).await;
    back.connected(Duration::from_secs(20)).await.unwrap();
    let reconnected = async {
        while queue.ask(&ada, &id).await.is_err() {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reconnected).await.expect("the store connects again");
    let carry_out = |job: Job| async move { Ok(job.request.into_body().to_vec()) };
    work_until(&queue, &redis.server, carry_out, &ada, &[(&id, Standing::Done(b"tea".to_vec()))]).await;
}

/// The list in the example's documentation.
#[tokio::test]
async fn the_documented_rights_are_enough() {
    let server = Server::start();
    let limits = "+eval +evalsha +time +get +set +del";
    let source = include_str!("../../examples/deferred/queue.rs");
    let words = source.split([' ', '\n', '`']).filter(|word| word.starts_with('+'));
    let rights: Vec<_> = words.map(|word| word.trim_end_matches('.')).collect();
    assert_eq!(rights.len(), 11, "{rights:?}");
    server.run::<()>(&format!("ACL SETUSER app on >secret ~rl:* {limits} {}", rights.join(" ")));
    let store = store(&server.url().replace("://", "://app:secret@")).await;
    let queue = Queue::new(&store, "orders", Seal::with_secret(SECRET).unwrap(), quick()).unwrap();
    let ada = Key::from("ada");
    let id = queue.accept(&ada, Some("once"), &order("tea")).await.unwrap();
    let mut cursor = Cursor::default();
    for _ in 0..2 {
        let taken = taken(&queue, &mut cursor).await;
        assert!(queue.hold(&taken).await.unwrap() && queue.fail(&taken).await.unwrap());
    }
    assert_eq!(queue.unpark(9).await.unwrap(), 1);
    let taken = taken(&queue, &mut cursor).await;
    assert!(queue.finish(&taken, b"well").await.unwrap());
    let Acceptance::Accepted(id) = id else { panic!("{id:?}") };
    assert!(matches!(queue.ask(&ada, &id).await.unwrap(), Some(Standing::Done(_))));
    turns(&store, "1000/s").unwrap().check("workers").acquire(Duration::from_secs(1)).await.unwrap();
    let refused: Vec<redis::Value> = server.run("ACL LOG");
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_the_value() {
    let server = Server::start();
    let store = store(&server.url()).await;
    let base = Settings::default();
    for (settings, problem) in [
        (Settings { most: 0, ..base.clone() }, "a queue of at most 0 jobs: use 1 or more"),
        (Settings { attempts: 0, ..base.clone() }, "0 attempts: use 1 or more"),
        (
            Settings { lease: Duration::from_millis(99), ..base.clone() },
            "a lease of 99ms: use 100 ms or more",
        ),
        (Settings { stays: Duration::ZERO, ..base }, "a result that stays for 0ns: use 1 s or more"),
    ] {
        let error = Queue::new(&store, "orders", Seal::in_clear(), settings).unwrap_err().to_string();
        assert_eq!(error, problem);
    }
}
