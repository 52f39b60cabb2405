//! What happens to servers and connections, and that the store comes back by itself every time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_redis::{RedisStore, RedisStoreBuilder};
use sluicegate_tests::servers::Server;

use crate::support;

fn settings() -> RedisStoreBuilder {
    RedisStore::builder().deadline(Duration::from_secs(1))
}

fn store(url: &str) -> RedisStore {
    settings().connect(url).expect("the URL can be read")
}

async fn connected(url: &str) -> RedisStore {
    support::connected(settings(), url).await
}

fn limiter(store: &RedisStore) -> RateLimiter {
    Policy::gcra("login", "1000000/30d").on(store).expect("the policy is possible")
}

/// Asks until the store decides again; how it refuses in between is for it to choose.
async fn recovers(limiter: &RateLimiter) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match limiter.charge("recovers", 1).await {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < deadline, "not within 20 seconds: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reports until the store has noticed: a report that is not answered is an error, whatever the policy says of an outage.
async fn notices(limiter: &RateLimiter) -> StoreErrorKind {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Err(error) = limiter.charge("notices", 1).await {
            return error.kind();
        }
        assert!(Instant::now() < deadline, "not within 20 seconds");
    }
}

/// The answer of a verdict that nobody has to wait for.
fn at_once(verdict: impl IntoFuture<IntoFuture = DecisionFuture>) -> Option<StoreErrorKind> {
    let mut verdict = verdict.into_future();
    match Pin::new(&mut verdict).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer.expect_err("there is no connection").kind()),
        Poll::Pending => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_script_is_sent_again_within_the_same_decision() {
    let server = Server::start();
    let limiter = limiter(&connected(&server.url()).await);
    for left in (0..10).rev() {
        server.run::<()>("SCRIPT FLUSH");
        let decision = limiter.check("ada").await.expect("the text is sent along");
        assert_eq!(decision.remaining(), 999_990 + left);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_counters_start_anew() {
    let server = Server::start();
    let limiter = Policy::sliding_log("login", "1/day").on(&connected(&server.url()).await).unwrap();
    for _ in 0..3 {
        assert!(limiter.check("ada").await.unwrap().is_allowed());
        assert!(!limiter.check("ada").await.unwrap().is_allowed());
        server.run::<()>("FLUSHALL");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_is_found_again() {
    let mut server = Server::start();
    let store = connected(&server.url()).await;
    let limiter = limiter(&store);
    for _ in 0..3 {
        server.stop();
        assert_eq!(notices(&limiter).await, StoreErrorKind::Unavailable);
        assert!(!store.is_connected());
        server.restart();
        recovers(&limiter).await;
        assert!(store.is_connected());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_started_without_redis_connects_when_redis_starts() {
    let mut server = Server::reserve(&[]);
    let store = store(&server.url());
    let limiter = limiter(&store);
    let absent = store.connected(Duration::from_millis(50)).await.expect_err("nobody listens");
    assert_eq!(absent.kind(), StoreErrorKind::Unavailable);
    assert!(!store.is_connected());
    server.restart();
    store.connected(Duration::from_secs(20)).await.expect("it is found without being asked for anything");
    assert!(store.is_connected());
    assert!(limiter.check("ada").await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_a_request_fails_before_it_waits() {
    let server = Server::reserve(&[]);
    let limiter = limiter(&settings().first_connection(Duration::ZERO).connect(&server.url()).unwrap());
    for _ in 0..100 {
        assert_eq!(at_once(limiter.charge("ada", 1)), Some(StoreErrorKind::Unavailable));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_costs_the_deadline_and_then_nothing() {
    let server = Server::start();
    let store = connected(&server.url()).await;
    let limiter = limiter(&store);
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    server.signal("STOP");
    let asked = Instant::now();
    let error = limiter.charge("ada", 1).await.expect_err("the server hangs");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    // Some timeouts later the connection is given up; from then on nobody waits for it.
    while store.is_connected() {
        let error = limiter.charge("ada", 1).await.expect_err("the server hangs");
        assert!(asked.elapsed() < Duration::from_secs(60), "{error:?}");
    }
    assert_eq!(at_once(limiter.charge("ada", 1)), Some(StoreErrorKind::Unavailable));
    server.signal("CONT");
    recovers(&limiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_became_a_replica_is_left_until_it_is_promoted_again() {
    let server = Server::start();
    let store = connected(&server.url()).await;
    let limiter = limiter(&store);
    server.run::<()>("REPLICAOF 127.0.0.1 1");
    assert_eq!(notices(&limiter).await, StoreErrorKind::Unavailable);
    // It answers `PING`, and would be taken for ready if that were the probe.
    assert_eq!(server.run::<String>("PING"), "PONG");
    assert!(store.connected(Duration::from_millis(300)).await.is_err());
    server.run::<()>("REPLICAOF NO ONE");
    recovers(&limiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_was_wrong_for_a_while_does_not_end_the_store() {
    let server = Server::start();
    server.run::<()>("ACL SETUSER app on >one ~rl:* +@all");
    let store = connected(&format!("redis://app:one@127.0.0.1:{}", server.port())).await;
    let limiter = limiter(&store);
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    server.run::<()>("ACL SETUSER app resetpass >two");
    server.run::<u64>("CLIENT KILL USER app");
    notices(&limiter).await;
    // redis::aio::ConnectionManager gives up for ever after one refused login.
    assert!(store.connected(Duration::from_millis(300)).await.is_err());
    server.run::<()>("ACL SETUSER app resetpass >one");
    recovers(&limiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_refuses_and_recovers_when_there_is_room() {
    let server = Server::start();
    let limiter = limiter(&connected(&server.url()).await);
    server.run::<()>("CONFIG SET maxmemory 1");
    let error = limiter.charge("ada", 1).await.expect_err("there is no room");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    server.run::<()>("CONFIG SET maxmemory 0");
    recovers(&limiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_while_connecting_is_the_end_of_an_attempt_and_not_of_the_store() {
    let server = Server::start();
    let attempts = Arc::new(AtomicU32::new(0));
    let client = redis::Client::open(server.url()).unwrap();
    let connect = {
        let attempts = Arc::clone(&attempts);
        move || {
            let (attempts, client) = (Arc::clone(&attempts), client.clone());
            async move {
                // Relaxed: attempts come one after the other.
                assert!(attempts.fetch_add(1, Ordering::Relaxed) > 1, "as rustls does without a provider");
                client.get_multiplexed_async_connection().await
            }
        }
    };
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).connect_with(connect).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the third attempt does not panic");
    assert!(limiter(&store).check("ada").await.unwrap().is_allowed());
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
}

/// A turn may be dropped anywhere: by a thread of the application's own, or while another panic unwinds.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_outside_of_a_runtime_is_given_back() {
    let server = Server::start();
    let limiter = limiter(&connected(&server.url()).await);
    assert_eq!(limiter.check("ada").await.unwrap().remaining(), 999_999);
    let elsewhere = limiter.clone();
    let thread = std::thread::spawn(move || drop(elsewhere.refund("ada", 1).start()));
    assert!(thread.join().is_ok(), "no thread panics for it");
    let deadline = Instant::now() + Duration::from_secs(20);
    while limiter.peek("ada").await.unwrap().remaining() < 1_000_000 {
        assert!(Instant::now() < deadline, "not within 20 seconds");
    }
}
