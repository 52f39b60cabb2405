//! `on_exceeded: defer` in a rules file, with a queue in memory and on the paused clock of tokio.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use sluicegate::MemoryStore;
use sluicegate::key::HeaderKey;
use sluicegate::overflow::deferred::{Deferral, Job, MemoryJobs, QueueSettings};
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate_tests::time::Paused;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

const RULES: &str = "
version: 1
policies:
  orders: { quota: 1/min, on_exceeded: defer }
  per-user: { quota: 4/h }
rules:
  - { name: order, only_if: { path: /orders }, limit: orders, key: everybody }
  - { name: all, limit: per-user, key: header(x-user) }
";

fn file(text: &str) -> RulesFile {
    RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap()
}

fn store() -> MemoryStore {
    MemoryStore::builder().clock(Paused::now()).build().unwrap()
}

fn deferral() -> Deferral {
    let queue = MemoryJobs::new(QueueSettings::default()).unwrap();
    Deferral::builder(queue, HeaderKey::new("x-user").unwrap(), "sixteen bytes or more").build().unwrap()
}

async fn served(_: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}

/// The statuses of so many requests of a user.
async fn statuses<S, B>(service: &S, user: &str, path: &str, count: usize) -> Vec<u16>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
{
    let mut statuses = Vec::new();
    for _ in 0..count {
        let request = Request::post(path).header("x-user", user).body(Full::default()).unwrap();
        statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    statuses
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_refuses_wins_and_requests_that_others_exceed_are_kept() {
    let rules = Rules::builder().deferral(deferral()).put(store(), file(RULES)).unwrap();
    let service = rules.layer().deferring().layer(service_fn(served));
    assert_eq!(statuses(&service, "ada", "/orders", 5).await, [200, 202, 202, 202, 429]);
    assert_eq!(statuses(&service, "bob", "/other", 5).await, [200, 200, 200, 200, 429]);
    assert_eq!(statuses(&service, "eve", "/orders", 1).await, [202]);
    // The plain layer keeps nothing, so it refuses.
    let plain = rules.layer().layer(service_fn(served));
    assert_eq!(statuses(&plain, "sue", "/orders", 1).await, [429]);
    let explained = rules.explain(&Request::post("/orders").header("x-user", "dan").body(()).unwrap()).await;
    let lines = explained.to_string();
    assert!(lines.contains("order: asks 1 of orders: 1/min (gcra)"), "{lines}");
    let line =
        "\n  order: defers what exceeds orders to the queue of the program, bodies up to 65536 bytes\n";
    assert!(lines.contains(line), "{lines}");
    assert_eq!(explained.rules[0].deferring[0].longest_body, Some(64 * 1024));
}

#[tokio::test(start_paused = true)]
async fn the_pace_of_jobs_that_wait_follows_a_reload() {
    let (store, deferral) = (store(), deferral());
    let rules = Rules::builder().deferral(deferral.clone()).put(&store, file(RULES)).unwrap();
    let service = rules.layer().deferring().layer(service_fn(served));
    for user in ["ada", "bob", "eve", "sue"] {
        statuses(&service, user, "/orders", 4).await;
    }
    let (start, begun) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&begun);
    let work = move |_: Job| {
        note.lock().unwrap().push(start.elapsed().as_secs());
        async { Ok(Vec::new()) }
    };
    let reload = async {
        tokio::time::sleep(Duration::from_secs(61)).await;
        rules.replace(file(&RULES.replace("1/min", "60/min burst 1"))).unwrap();
        tokio::time::sleep(Duration::from_secs(500)).await;
        // A policy that has left the file paces no job.
        assert_eq!(statuses(&service, "dan", "/orders", 2).await, [200, 202]);
    };
    let works = deferral.work(&store, tokio::time::sleep(Duration::from_secs(600)), work);
    tokio::join!(works, reload);
    let at = std::mem::take(&mut *begun.lock().unwrap());
    assert_eq!((at.len(), at[0]), (16, 60), "{at:?}");
    assert!(at[14] < 5 * 60, "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_shadow_defers_nothing_and_one_that_begins_to_defer_does_so_from_then_on() {
    let shadowed = RULES.replace("on_exceeded: defer", "on_exceeded: defer, mode: shadow");
    let rules = Rules::builder().deferral(deferral()).put(store(), file(&shadowed)).unwrap();
    let service = rules.layer().deferring().layer(service_fn(served));
    assert_eq!(statuses(&service, "ada", "/orders", 3).await, [200; 3]);
    let explained = rules.explain(&Request::post("/orders").header("x-user", "ada").body(()).unwrap()).await;
    assert!(explained.rules.iter().all(|rule| rule.deferring.is_empty()), "{explained}");
    rules.replace(file(RULES)).unwrap();
    assert_eq!(statuses(&service, "bob", "/orders", 1).await, [202]);
    rules.replace(file(&RULES.replace("defer", "deny"))).unwrap();
    assert_eq!(statuses(&service, "bob", "/orders", 1).await, [429]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_kept_gives_its_permit_back() {
    let at_once = RULES
        .replace("key: everybody", "key: everybody, in_flight: one")
        .replace("rules:", "in_flight: { one: { permits: 1 } }\nrules:");
    let rules = Rules::builder().deferral(deferral()).put(store(), file(&at_once)).unwrap();
    let service = rules.layer().deferring().layer(service_fn(served));
    assert_eq!(statuses(&service, "ada", "/orders", 4).await, [200, 202, 202, 202]);
}

#[tokio::test]
async fn a_file_that_defers_is_refused_without_a_deferral_when_it_is_opened_and_when_it_is_read_again() {
    let text = "rule \"order\" has the policy \"orders\", which defers, and the program keeps no requests: open the file by `Rules::builder().deferral(..)`";
    let error = Rules::new(MemoryStore::new(), file(RULES)).unwrap_err().to_string();
    assert!(error.starts_with("rules.yaml:7:") && error.contains(text), "{error}");
    let rules = Rules::new(MemoryStore::new(), file(&RULES.replace("defer", "deny"))).unwrap();
    let error = rules.replace(file(RULES)).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
    // A tool looks at it all the same.
    let tool = Rules::new(MemoryStore::new(), file(RULES).without_rooms()).unwrap();
    assert_eq!(tool.store().limiters().get("orders").unwrap().policy().name(), "orders");
}
