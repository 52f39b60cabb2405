//! Trouble that is not of the server: see the faults beside this for that.

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

async fn connected(url: &str) -> RedisStore {
    support::connected(settings(), url).await
}

fn limiter(store: &RedisStore) -> RateLimiter {
    Policy::gcra("login", "1000000/30d").on(store).expect("the policy is possible")
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
async fn without_a_connection_a_request_fails_before_it_waits() {
    let server = Server::reserve(&[]);
    let limiter = limiter(&settings().first_connection(Duration::ZERO).connect(&server.url()).unwrap());
    for _ in 0..100 {
        assert_eq!(at_once(limiter.charge("ada", 1)), Some(StoreErrorKind::Unavailable));
    }
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
