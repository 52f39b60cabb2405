//! The waits of requests under the rules of a file: of clients that leave, and of those that obey.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use sluicegate_core::{Key, MemoryStore, Policy};
use sluicegate_rules::Rules;
use sluicegate_tests::time::Paused;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::parse;

const RULES: &str = "
version: 1
policies:
  shared: { quota: 10/s burst 1, on_exceeded: wait 20s }
  user: { quota: 5/s }
rules:
  - { name: user, limit: user, key: header(x-user) }
  - { name: shared, limit: shared, key: everybody }
";

/// Fifteen requests a second of clients that leave after five seconds: none was served after the first fifteen.
#[tokio::test(start_paused = true)]
async fn a_limit_that_all_share_is_used_in_full_although_all_clients_leave_in_the_end() {
    let store = MemoryStore::builder().clock(Paused::now()).build().expect("the settings are possible");
    let rules = Rules::new(&store, parse(RULES)).expect("memory keeps all");
    let served = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&served);
    let service = rules.layer().layer(service_fn(move |_: Request<String>| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    }));
    let start = Instant::now();
    let mut before = 0;
    for user in 0.. {
        if start.elapsed() < Duration::from_secs(60) {
            before = served.load(Ordering::Relaxed);
        } else if start.elapsed() >= Duration::from_secs(120) {
            break;
        }
        let request = Request::get("/").header("x-user", user % 1_000).body(String::new());
        let answer = service.clone().oneshot(request.expect("it is a request"));
        tokio::spawn(timeout(Duration::from_secs(5), answer));
        sleep(Duration::from_millis(66)).await;
    }
    let served = served.load(Ordering::Relaxed) - before;
    assert!((570..=601).contains(&served), "{served} of 600 in a minute");
}

#[tokio::test]
async fn rules_around_a_layer_tell_the_wait_of_that_layer_as_well() {
    let store = MemoryStore::new();
    let outer = "version: 1\npolicies: { outer: { quota: 1/min } }\nrules: [{ name: outer, limit: outer, key: everybody }]\n";
    let rules = Rules::new(&store, parse(outer)).expect("memory keeps all");
    let inner = Policy::gcra("inner", "1/h").on(&store).expect("memory keeps it");
    let inner = RateLimitLayer::new(Limit::new(inner).key(Key::from("all")));
    let handler =
        service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
    let service = rules.layer().layer(inner.layer(handler));
    let ask = async || service.clone().oneshot(Request::new(String::new())).await.expect("it never fails");
    assert_eq!(ask().await.status(), 200);
    assert_eq!(ask().await.headers()["retry-after"], "3600");
}
