//! The same service on memory and on Redis, under many clients at once, over real sockets: counts are exact.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Path;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::future::join_all;
use http::{Method, StatusCode};
use sluicegate::in_flight::InFlight;
use sluicegate::policy::PolicyBuilder;
use sluicegate::{
    Limit, MemoryStore, Meter, Policy, RateLimitExt, RateLimitLayer, RateLimiter, RedisStore, Store,
};
use sluicegate_tests::log::Log;
use sluicegate_tests::servers::Server;

use crate::support::{Client, serve};

/// A store, and what has to live as long as it does.
struct Home {
    store: Arc<dyn Store>,
    _server: Option<Server>,
}

async fn memory() -> Home {
    Home { store: MemoryStore::new().into(), _server: None }
}

async fn redis() -> Home {
    let server = Server::start();
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).connect(&server.url()).unwrap();
    store.connected(Duration::from_secs(5)).await.expect("the server runs");
    Home { store: store.into(), _server: Some(server) }
}

/// Runs a case on both stores.
macro_rules! on_both_stores {
    ($($case:ident),* $(,)?) => {$(
        mod $case {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_memory() {
                super::case::$case(super::memory().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_redis() {
                super::case::$case(super::redis().await).await;
            }
        }
    )*};
}

/// `InFlight::new("exports", 10)` admitted 20 on two instances, beside a page that says "only the store changes".
#[tokio::test]
async fn permits_of_one_process_beside_a_store_that_instances_share_are_worth_a_warning() {
    sluicegate_tests::process::alone(|| {
        let log = Log::of_this_thread();
        let before = InFlight::new("exports", 10).unwrap();
        let memory = Policy::gcra("a", "1/s").on(MemoryStore::new()).unwrap();
        assert_eq!(log.lines(), [""; 0]);
        let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
        let policy = Policy::gcra("a", "1/s").on(&store).unwrap();
        let after = InFlight::new("imports", 10).unwrap();
        let meant = InFlight::builder("jobs", 10).on(MemoryStore::new()).unwrap();
        let shared = InFlight::builder("reports", 10).on(&store).unwrap();
        let lines: Vec<_> = log.lines().into_iter().filter(|line| line.contains("each instance")).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("exports") && lines[1].contains("imports"), "{lines:?}");
        assert!(lines[0].contains("`InFlight::builder(..).on(&store)`"), "{lines:?}");
        drop((before, memory, policy, after, meant, shared));
    });
}

on_both_stores! {
    of_sixty_four_clients_at_once_exactly_the_limit_passes,
    all_who_wait_pass_in_their_turn,
    a_client_that_disconnects_while_it_waits_gives_its_turn_back,
    logins_that_succeed_are_given_back_and_those_that_fail_count,
    what_handlers_find_out_is_charged_to_the_unit,
}

fn on(home: &Home, policy: PolicyBuilder) -> RateLimiter {
    policy.on(Arc::clone(&home.store)).unwrap()
}

/// The same request of so many clients at once, each on a connection of its own.
async fn at_once(server: std::net::SocketAddr, clients: usize, path: &str) -> Vec<StatusCode> {
    let connections = join_all((0..clients).map(|_| Client::connect(server))).await;
    let ask = |mut client: Client| async move { client.get(path).await.status() };
    join_all(connections.into_iter().map(ask)).await
}

fn count(statuses: &[StatusCode], status: StatusCode) -> usize {
    statuses.iter().filter(|other| **other == status).count()
}

/// Asks again and again until it is so: what is given back or charged may arrive after the response did.
async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let poll = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), poll)
        .await
        .unwrap_or_else(|_| panic!("in ten seconds: {what}"));
}

async fn remaining(limiter: &RateLimiter) -> u64 {
    limiter.peek(std::net::Ipv4Addr::LOCALHOST).await.expect("the store answers").remaining()
}

mod case {
    use super::*;

    pub(super) async fn of_sixty_four_clients_at_once_exactly_the_limit_passes(home: Home) {
        for policy in [
            Policy::gcra("gcra", "20/h"),
            Policy::fixed_window("window", "20/d"),
            Policy::sliding_counter("counter", "20/d"),
            Policy::sliding_log("log", "20/h"),
        ] {
            let app = Router::new().route("/", get(|| async { "hello" })).rate_limit(on(&home, policy));
            let statuses = at_once(serve(app).await, 64, "/").await;
            assert_eq!(count(&statuses, StatusCode::OK), 20);
            assert_eq!(count(&statuses, StatusCode::TOO_MANY_REQUESTS), 44);
        }
    }

    pub(super) async fn all_who_wait_pass_in_their_turn(home: Home) {
        let policy = Policy::gcra("upload", "50/s burst 1").wait_up_to(Duration::from_secs(60));
        let app = Router::new().route("/", get(|| async { "done" })).rate_limit(on(&home, policy));
        let start = std::time::Instant::now();
        let statuses = at_once(serve(app).await, 20, "/").await;
        assert_eq!(count(&statuses, StatusCode::OK), 20);
        // The last one's turn is 19 spacings after the first one's. Nobody is too early; late is the machine's affair.
        assert!(start.elapsed() >= Duration::from_millis(19 * 20));
    }

    pub(super) async fn a_client_that_disconnects_while_it_waits_gives_its_turn_back(home: Home) {
        let limiter =
            on(&home, Policy::gcra("upload", "1/h burst 1").wait_up_to(Duration::from_secs(86_400)));
        let layer = RateLimitLayer::builder(limiter.clone()).build().unwrap();
        let app = Router::new().route("/", get(|| async { "done" })).rate_limit(layer.clone());
        let server = serve(app).await;
        assert_eq!(Client::connect(server).await.get("/").await.status(), StatusCode::OK);
        let next_turn = || async {
            let turn =
                limiter.peek(std::net::Ipv4Addr::LOCALHOST).await.expect("the store answers").retry_after();
            turn.map_or(0, |wait| wait.as_secs() / 3_500)
        };
        let waits = tokio::spawn(async move { Client::connect(server).await.get("/").await });
        eventually("the second one has a turn, so that the third one's is two hours away", || async {
            next_turn().await == 2
        })
        .await;
        waits.abort();
        eventually("its turn is the next one's", || async { next_turn().await == 1 }).await;
        assert_eq!(layer.waiting(), 0);
    }

    pub(super) async fn logins_that_succeed_are_given_back_and_those_that_fail_count(home: Home) {
        async fn login(Path(works): Path<bool>) -> StatusCode {
            if works { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
        }
        let limiter = on(&home, Policy::sliding_log("login", "50/h"));
        let limit = Limit::new(limiter.clone()).refund_if(|head| head.status.is_success());
        let app = Router::new().route("/login/{works}", get(login).rate_limit(limit));
        let server = serve(app).await;
        for _ in 0..5 {
            let statuses = at_once(server, 40, "/login/true").await;
            assert_eq!(count(&statuses, StatusCode::OK), 40);
            eventually("all units are back", || async { remaining(&limiter).await == 50 }).await;
        }
        let statuses = at_once(server, 64, "/login/false").await;
        assert_eq!(count(&statuses, StatusCode::UNAUTHORIZED), 50);
        assert_eq!(count(&statuses, StatusCode::TOO_MANY_REQUESTS), 14);
    }

    pub(super) async fn what_handlers_find_out_is_charged_to_the_unit(home: Home) {
        async fn complete(Path(tokens): Path<u64>, Extension(meter): Extension<Meter>) -> StatusCode {
            match meter.settle(tokens).await {
                Ok(_) => StatusCode::OK,
                Err(_) => StatusCode::BAD_GATEWAY,
            }
        }
        let limiter = on(&home, Policy::fixed_window("tokens", "1000/d"));
        let limit = Limit::new(limiter.clone()).cost(10).unwrap();
        let layer = RateLimitLayer::builder(limit).meter().build().unwrap();
        let app = Router::new().route("/complete/{tokens}", get(complete).rate_limit(layer));
        let server = serve(app).await;
        for (path, spent) in [("/complete/3", 60), ("/complete/10", 260), ("/complete/30", 860)] {
            assert_eq!(count(&at_once(server, 20, path).await, StatusCode::OK), 20);
            eventually("all is settled", || async { remaining(&limiter).await == 1_000 - spent }).await;
        }
        // Fourteen estimates fit into what is left; what they really were is a debt.
        let statuses = at_once(server, 1, "/complete/500").await;
        assert_eq!(count(&statuses, StatusCode::OK), 1);
        assert_eq!(count(&at_once(server, 5, "/complete/1").await, StatusCode::TOO_MANY_REQUESTS), 5);
        assert_eq!(Client::connect(server).await.send(Method::GET, "/complete/1").await.status(), 429);
    }
}
