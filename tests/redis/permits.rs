//! Permits for requests under way that instances share.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use sluicegate::in_flight::{
    HeldPermit, InFlight, InFlightBuilder, InFlightLayer, InFlightLimit, NoPermitKind, Permit,
};
use sluicegate::key::HeaderKey;
use sluicegate::observed::Observed;
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate::status::StatusPage;
use sluicegate_core::{MemoryStore, OnOutage};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::{Cluster, Sentinels, standalone};
use sluicegate_tests::servers::{Server, eventually};
use tokio::time::timeout;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{connected, patient};

const LONG: Duration = Duration::from_secs(60);

fn jobs(permits: u64) -> InFlightBuilder {
    InFlight::builder("jobs", permits).lease(Duration::from_secs(5)).on_outage(OnOutage::Deny)
}

/// An instance of its own.
async fn instance(url: &str, prefix: &str, permits: u64) -> InFlight {
    jobs(permits).on(&connected(patient(prefix), url).await).unwrap()
}

async fn acquire(jobs: &InFlight, key: &str) -> Permit {
    timeout(LONG, jobs.acquire(key)).await.expect("in time").expect("it waits for one")
}

async fn attempt(jobs: &InFlight, key: &str) -> Option<Permit> {
    match timeout(LONG, jobs.request(key).attempt()).await.expect("in time") {
        Ok(permit) => Some(permit),
        Err(none) => {
            assert_eq!(none.kind(), NoPermitKind::Permits);
            None
        }
    }
}

/// Takes a permit as soon as other instances have given theirs back, which they do in the background.
async fn soon(jobs: &InFlight, key: &str) -> Permit {
    let permit = async {
        loop {
            if let Some(permit) = attempt(jobs, key).await {
                return permit;
            }
        }
    };
    timeout(LONG, permit).await.expect("one comes back")
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_share_a_number_on_every_deployment_and_keys_are_apart() {
    for url in [standalone().url(), Cluster::shared().url(), Sentinels::shared().url()] {
        let (one, other) = (instance(&url, "permits", 3).await, instance(&url, "permits", 3).await);
        for key in ["ada", "bob", "cyd"] {
            let mut held =
                vec![acquire(&one, key).await, acquire(&other, key).await, acquire(&one, key).await];
            assert!(attempt(&one, key).await.is_none() && attempt(&other, key).await.is_none(), "{url}");
            assert_eq!((one.in_use(key), other.in_use(key), other.remaining(key)), (2, 1, 0));
            drop(held.pop());
            held.push(soon(&other, key).await);
            assert_eq!((one.in_use(key), other.in_use(key)), (1, 2));
        }
    }
}

/// The page of an instance that serves requests by this limit, as data and as HTML.
async fn shown(name: &str, jobs: &InFlight) -> (Value, String) {
    let store = Observed::named(name, MemoryStore::new()).unwrap();
    store.in_flight(jobs);
    let page = StatusPage::new(&store).unguarded_and_read_only().build().unwrap();
    let get = async |path: &str| {
        let request = Request::get(path).body(String::new()).unwrap();
        page.clone().oneshot(request).await.unwrap().into_body()
    };
    let document: Value = serde_json::from_str(&get("/status.json").await).unwrap();
    let shared = document["shared"].as_array().unwrap().iter().find(|limit| limit["name"] == jobs.name());
    (shared.cloned().unwrap_or_default(), get("/").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_two_instances_say_what_is_out_here_and_on_both_and_when_the_store_has_answered() {
    let server = Server::start();
    let url = server.url();
    let (one, other) = (instance(&url, "shown", 8).await, instance(&url, "shown", 8).await);
    // The oldest has the limits that no other one has asked for, also those of other tests.
    let _oldest = Observed::named("permits-all", MemoryStore::new()).unwrap();
    let (idle, page) = shown("permits-idle", &one).await;
    assert_eq!((&idle["answered_seconds"], &idle["in_use"]), (&Value::Null, &json!(0)), "{idle}");
    assert!(page.contains("not known here") && page.contains("not asked yet"), "{page}");
    let mut held = vec![acquire(&one, "ada").await, acquire(&one, "bob").await];
    held.extend([acquire(&other, "ada").await, acquire(&other, "ada").await]);
    let (document, page) = shown("permits-other", &other).await;
    for (field, value) in
        [("in_use", 2), ("keys", 1), ("held", 3), ("instances", 2), ("permits", 8), ("lost", 0)]
    {
        assert_eq!(document[field], value, "{field}: {document}");
    }
    assert_eq!((&document["store"], &document["lease_seconds"]), (&json!("ok"), &json!(5)), "{document}");
    assert!(document["answered_seconds"].as_u64().is_some_and(|ago| ago < 20), "{document}");
    assert!(
        page.contains("3 of 8 on 2 instances") && page.contains("Requests at once on all instances"),
        "{page}"
    );
    // The first one learns of it with its next call.
    held.push(acquire(&one, "ada").await);
    let (document, page) = shown("permits-one", &one).await;
    assert_eq!(
        (&document["in_use"], &document["held"], &document["instances"]),
        (&json!(3), &json!(4), &json!(2))
    );
    assert!(page.contains("3 for 2 keys"), "{page}");
    drop(server);
    eventually("it is told of the outage", || one.shared_status().is_some_and(|status| status.is_down));
    let (document, page) = shown("permits-down", &one).await;
    assert_eq!(document["store"], "down");
    assert!(page.contains("the store does not answer"), "{page}");
    drop(held);
    let fixed = InFlight::new("uploads", 2).unwrap();
    let (none, page) = shown("permits-fixed", &fixed).await;
    assert!(none.is_null() && !page.contains("Requests at once on all instances"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_waits_gets_the_permit_that_another_instance_gives_back() {
    let url = standalone().url();
    let (one, other) = (instance(&url, "waits", 1).await, instance(&url, "waits", 1).await);
    let held = acquire(&one, "ada").await;
    let waits = tokio::spawn(async move { acquire(&other, "ada").await });
    tokio::task::yield_now().await;
    drop(held);
    let held = waits.await.unwrap();
    assert!(attempt(&one, "ada").await.is_none());
    drop(held);
}

/// Each instance has more to do than there are permits, so that no permit ever comes back to an instance without others that wait.
#[tokio::test(flavor = "multi_thread")]
async fn four_busy_instances_never_have_more_than_the_number_and_none_of_them_starves() {
    let url = standalone().url();
    let (out, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut served = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let jobs = instance(&url, "busy", 2).await;
        let turns = Arc::new(AtomicU64::new(0));
        served.push(Arc::clone(&turns));
        for _ in 0..8 {
            let (jobs, turns) = (jobs.clone(), Arc::clone(&turns));
            let (out, most) = (Arc::clone(&out), Arc::clone(&most));
            tasks.push(tokio::spawn(async move {
                loop {
                    let permit = acquire(&jobs, "all").await;
                    most.fetch_max(out.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    out.fetch_sub(1, Ordering::SeqCst);
                    assert!(!permit.is_lost());
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
    }
    let all_served = || served.iter().all(|turns| turns.load(Ordering::SeqCst) >= 20);
    tokio::task::block_in_place(|| eventually("each of four instances has had 20 turns", all_served));
    assert!(tasks.iter().all(|task| !task.is_finished()));
    // Before they are stopped: a task that is stopped gives its permit back, and still counts in `out`.
    assert_eq!(most.load(Ordering::SeqCst), 2);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Some are dropped before they are polled, some while the store is asked, some with a permit that nobody has looked at.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_dropped_at_any_moment_leave_nothing_behind() {
    let server = Server::start();
    let (one, other) = (instance(&server.url(), "rl", 2).await, instance(&server.url(), "rl", 2).await);
    let drops = (0..400_u64).map(|number| {
        let jobs = if number % 2 == 0 { one.clone() } else { other.clone() };
        tokio::spawn(async move {
            let patience = async {
                for _ in 0..number % 37 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { biased; _ = jobs.acquire(number % 3) => {}, () = patience => {} }
        })
    });
    for drop in drops.collect::<Vec<_>>() {
        drop.await.unwrap();
    }
    assert_eq!((one.in_use_in_all(), other.in_use_in_all()), (0, 0));
    let held = [acquire(&other, "ada").await, acquire(&one, "ada").await];
    assert!(attempt(&one, "ada").await.is_none());
    drop(held);
    // With the last permit the key vanishes.
    tokio::task::block_in_place(|| eventually("nothing is left", || server.run::<u64>("DBSIZE") == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_under_the_name_of_a_key_counts_as_nothing() {
    let server = Server::start();
    let store = connected(patient("rl"), &server.url()).await;
    let jobs = jobs(1).on(&store).unwrap();
    drop(acquire(&jobs, "ada").await);
    let held = acquire(&jobs, "ada").await;
    let names: Vec<String> = server.run("KEYS rl:3:jobs:*");
    let [name] = &*names else { panic!("{names:?}") };
    assert!(!name.contains("ada"));
    for foreign in ["SET key 7", "HSET key other nonsense", "HSET key other 1,2,3,4,5,6"] {
        server.run::<()>(&format!("DEL {name}"));
        server.run::<redis::Value>(&foreign.replace("key", name));
        assert!(attempt(&jobs, "ada").await.is_none());
    }
    assert!(!held.is_lost(), "it is claimed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rules_file_shares_permits_by_its_store() {
    let text = "
version: 1
policies: { free: { quota: 100000/min } }
in_flight: { calls: { permits: 2, shared: true, on_outage: deny } }
rules: [{ name: all, limit: free, key: everybody, in_flight: calls }]
";
    let rules = async || {
        let file = RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap();
        Rules::new(&connected(patient("ruled"), &standalone().url()).await, file).unwrap()
    };
    let (one, other) = (rules().await, rules().await);
    let call = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from("an answer"))))
    });
    let send = async |rules: &Rules| {
        let response = rules.layer().layer(call).oneshot(Request::new(()));
        timeout(LONG, response).await.expect("in time").unwrap()
    };
    let held = [send(&one).await, send(&other).await];
    assert!(held.iter().all(|response| response.status() == StatusCode::OK));
    assert_eq!(send(&one).await.status(), StatusCode::TOO_MANY_REQUESTS);
    let explained = one.explain(&Request::new(())).await.to_string();
    assert!(explained.contains("0 of 2 left for all instances"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_holds_its_permit_for_all_instances_and_a_handler_sees_it() {
    let mut server = Server::start();
    let layer = async || {
        let jobs = jobs(1)
            .on(&connected(RedisStore::builder().deadline(Duration::from_secs(2)), &server.url()).await)
            .unwrap();
        InFlightLayer::new(InFlightLimit::new(jobs).key(HeaderKey::new("x-tenant").unwrap()))
    };
    let (one, other) = (layer().await, layer().await);
    let report = service_fn(|request: Request<()>| async move {
        let held = request.extensions().get::<HeldPermit>().expect("it is there");
        assert!(!held.permit().is_lost());
        Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from("a report"))))
    });
    let send = async |layer: &InFlightLayer| {
        let request = Request::get("/").header("x-tenant", "ada").body(()).unwrap();
        timeout(LONG, layer.layer(report).oneshot(request)).await.expect("in time").unwrap()
    };
    let first = send(&one).await;
    assert_eq!(
        (first.status(), &first.headers()["ratelimit"]),
        (StatusCode::OK, &"\"jobs\";r=0".parse().unwrap())
    );
    assert_eq!(send(&other).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "a report");
    let again = async { while send(&other).await.status() != StatusCode::OK {} };
    timeout(LONG, again).await.expect("its permit is back");
    server.stop();
    let unavailable = async { while send(&one).await.status() != StatusCode::SERVICE_UNAVAILABLE {} };
    timeout(LONG, unavailable).await.expect("the limit refuses without its store");
}

/// As an upgraded connection does, whose task outlives the response, and which may end by a panic.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_outlives_its_response_holds_its_permit_for_all_instances_until_it_ends_or_panics() {
    let url = standalone().url();
    let (one, other) = (instance(&url, "tasks", 1).await, instance(&url, "tasks", 1).await);
    for panics in [false, true] {
        let (end, ends) = tokio::sync::oneshot::channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new(Some(ends)));
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let upgrades = service_fn(move |mut request: Request<()>| {
            let held = request.extensions_mut().remove::<HeldPermit>().expect("it is there");
            let ends = ends.lock().unwrap().take().expect("one request comes");
            let task = tokio::spawn(async move {
                ends.await.unwrap();
                assert!(!panics, "the connection breaks");
                drop(held);
            });
            tell.try_send(task).unwrap();
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default())))
        });
        let limit = InFlightLimit::new(one.clone()).key(sluicegate::Key::from("all"));
        let layer = InFlightLayer::new(limit).layer(upgrades);
        // The permit of the round before may be on its way back.
        let response = loop {
            let request = Request::get("/")
                .header("connection", "upgrade")
                .header("upgrade", "websocket")
                .body(())
                .unwrap();
            let response = timeout(LONG, layer.clone().oneshot(request)).await.expect("in time").unwrap();
            if response.status() == StatusCode::OK {
                break response;
            }
        };
        drop(response.into_body().collect().await);
        assert_eq!(one.in_use("all"), 1, "the response is over");
        assert!(attempt(&other, "all").await.is_none());
        end.send(()).unwrap();
        assert_eq!(told.recv().await.unwrap().await.is_err(), panics);
        drop(soon(&other, "all").await);
        assert_eq!(one.in_use("all"), 0);
    }
}
