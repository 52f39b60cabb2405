//! One policy behind several doors: handlers with an attribute, a route, and a caller that has the limiter.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::routing::get;
use axum::{Extension, Router};
use sluicegate_axum::{RateLimitExt, rate_limited};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{MemoryStore, Policy};
use sluicegate_tests::time::Paused;
use tokio::time::{Instant, sleep};

use crate::support::{request, send, statuses, store, store_on};

/// After how many milliseconds each request was handled.
#[derive(Clone)]
struct Handled(Instant, Arc<Mutex<Vec<u128>>>);

async fn note(Extension(Handled(start, seen_ms)): Extension<Handled>) {
    seen_ms.lock().unwrap().push(start.elapsed().as_millis());
}

#[rate_limited("1/s burst 1", name = "mail", on_exceeded = "wait 60s", crate = sluicegate_axum)]
async fn invite(handled: Extension<Handled>) {
    note(handled).await;
}

#[rate_limited("1/s burst 1", name = "mail", on_exceeded = "wait 60s", crate = sluicegate_axum)]
async fn remind(handled: Extension<Handled>) {
    note(handled).await;
}

/// Each handler had a queue of its own: after hang-ups 20 passed in 10 s at 1/s.
#[tokio::test(start_paused = true)]
async fn handlers_and_routes_that_share_a_name_let_one_go_at_a_time_whoever_hangs_up() {
    for step in [1, 7, 11, 29, 39] {
        let handled = Handled(Instant::now(), Arc::default());
        let store = store_on(Paused(handled.0));
        let mail =
            Policy::gcra("mail", "1/s burst 1").wait_up_to(Duration::from_secs(60)).on(&store).unwrap();
        let app = Router::new()
            .route("/0", get(invite))
            .route("/1", get(remind))
            .route("/2", get(note).rate_limit(mail))
            .with_rate_limits(&store)
            .layer(Extension(handled.clone()));
        let mut clients = Vec::new();
        for place in 0..50 {
            if place == 40 {
                for leaves in 0..20 {
                    let client: &tokio::task::JoinHandle<()> = &clients[leaves * step % 40];
                    client.abort();
                    sleep(Duration::from_millis(130)).await;
                }
            }
            let (app, path) = (app.clone(), format!("/{}", place % 3));
            clients.push(tokio::spawn(async move {
                assert_eq!(send(&app, request(&path, 1, None)).await.status, 200);
            }));
            tokio::task::yield_now().await;
        }
        let mut hung_up = 0;
        for client in clients {
            let left = client.await.is_err_and(|error| error.is_cancelled());
            hung_up += usize::from(left);
        }
        let seen_ms = handled.1.lock().unwrap().clone();
        let one_a_second: Vec<_> = (0..seen_ms.len() as u128).map(|second| second * 1_000).collect();
        assert_eq!(seen_ms.len(), 50 - hung_up, "{step}: {seen_ms:?}");
        assert_eq!(seen_ms, one_a_second, "{step}");
    }
}

#[rate_limited("5/min", name = "login", crate = sluicegate_axum)]
async fn login() {}

#[rate_limited("5/min", name = "login", crate = sluicegate_axum)]
async fn log_in_by_mail() {}

/// Two handlers and a route under the policy `login`.
fn logins(store: &MemoryStore) -> Router {
    Router::new()
        .route("/0", get(login))
        .route("/1", get(log_in_by_mail))
        .with_rate_limits(store)
        .route("/2", get(|| async {}).rate_limit(Policy::gcra("login", "5/min").on(store).unwrap()))
}

/// 5 of 5 were spent, the policy became 6/min through one handle, and 5 more passed through another.
#[tokio::test]
async fn a_replacement_is_seen_by_handlers_routes_and_callers() {
    let paths = ["/0", "/1", "/2"];
    for first in paths {
        let store = store();
        let (app, caller) = (logins(&store), Policy::gcra("login", "5/min").on(&store).unwrap());
        assert_eq!(statuses(&app, first, 6).await, [200, 200, 200, 200, 200, 429]);
        caller.replace(Policy::gcra("login", "6/min").build().unwrap(), Inherit::Spent).unwrap();
        let mut passed = 0;
        for path in paths {
            passed += statuses(&app, path, 2).await.iter().filter(|status| **status == 200).count();
        }
        assert_eq!(passed, 1, "{first}");
        assert!(!caller.check(Ipv4Addr::new(198, 51, 100, 1)).await.unwrap().is_allowed());
    }
}

/// The handler answered 500 to every request.
#[tokio::test]
async fn a_policy_that_was_replaced_before_the_first_request_of_a_handler_decides_it() {
    let store = store();
    let caller = Policy::gcra("login", "5/min").on(&store).unwrap();
    let app = logins(&store);
    caller.replace(Policy::gcra("login", "2/min").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(statuses(&app, "/0", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/1", 1).await, [429]);
    assert_eq!(statuses(&app, "/2", 1).await, [429]);
}
