//! A service that stops while requests wait: they are answered, and what it holds goes back to the server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use axum::routing::get;
use sluicegate::key::RequestMethod;
use sluicegate::{Limit, RateLimitLayer};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Policy, RateLimiter, Store};
use sluicegate_fleet::{DenyCache, Leased};
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::{Server, eventually};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// More than go with one call of a store.
const WAITING: usize = 40;

/// Nothing of it drains while the test runs.
fn pages() -> PolicyBuilder {
    Policy::gcra("pages", "100000/30d")
}

/// A turn each hour: none of those who wait goes.
fn letters() -> PolicyBuilder {
    Policy::gcra("letters", "1/h burst 1").wait_up_to(Duration::from_secs(86_400 * 30))
}

async fn connected(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).connect(url).unwrap();
    store.connected(Duration::from_secs(20)).await.unwrap();
    store
}

/// Of forty turns that were waited for, the server once had five back: those behind a later one were refused, and nobody asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f52_a_service_that_stops_answers_those_who_wait_and_gives_back_their_turns_and_its_leases() {
    let server = Server::start();
    let resilient = Resilient::builder(&connected(&server.url()).await).build().unwrap();
    let leased = Leased::new(&resilient);
    let store: Arc<dyn Store> = DenyCache::new(&leased).into();
    let (pages, letters) = (pages().on(Arc::clone(&store)).unwrap(), letters().on(store).unwrap());
    let layer = |limiter: &RateLimiter| RateLimitLayer::new(Limit::new(limiter.clone()).key(RequestMethod));

    let (stop, stopped) = watch::channel(false);
    let (end, ended) = watch::channel(false);
    // The stop timeout: whatever is still under way when it is over is answered.
    let until_the_end = move |request: Request, next: Next| {
        let mut ended = ended.clone();
        async move {
            tokio::select! {
                response = next.run(request) => response,
                _ = ended.wait_for(|is_over| *is_over) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            }
        }
    };
    let app = Router::new()
        .route("/page", get(|| async {}).layer(layer(&pages)))
        .route("/letter", get(|| async {}).layer(layer(&letters)))
        .layer(from_fn(until_the_end));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let mut stopped = stopped;
        axum::serve(listener, app)
            .with_graceful_shutdown(async move { _ = stopped.wait_for(|stops| *stops).await })
            .await
    });

    let client = reqwest::Client::new();
    let ask = |path: &'static str| {
        let sent = client.get(format!("{url}{path}")).send();
        async move { sent.await.unwrap().status().as_u16() }
    };
    let mut spent = 0;
    while leased.status().held == 0 {
        assert_eq!(ask("/page").await, 200);
        spent += 1;
        assert!(spent < 10_000, "a busy key is leased");
    }
    assert_eq!(ask("/letter").await, 200);
    let mut waiting = JoinSet::new();
    (0..WAITING).for_each(|_| drop(waiting.spawn(ask("/letter"))));
    tokio::task::block_in_place(|| eventually("they wait", || letters.waiting() == WAITING));

    stop.send(true).unwrap();
    end.send(true).unwrap();
    while let Some(status) = waiting.join_next().await {
        assert_eq!(status.unwrap(), 503);
    }
    served.await.unwrap().unwrap();
    assert!(letters.store().limiters().turns_returned(Duration::from_secs(10)).await);
    leased.close(Duration::from_secs(10)).await.unwrap();
    resilient.close(Duration::from_secs(10)).await.unwrap();

    // As another instance finds it.
    let other = connected(&server.url()).await;
    let (pages, letters) = (self::pages().on(&other).unwrap(), self::letters().on(&other).unwrap());
    let look = pages.peek("GET").await.unwrap();
    assert_eq!(look.capacity() - look.remaining(), spent, "units of leases that nobody used");
    let look = letters.peek("GET").await.unwrap();
    let left = look.reset_after();
    assert!(left <= Duration::from_secs(3_600), "{left:?} for one letter that was written");
    assert!(left > Duration::from_secs(3_000), "{left:?}: the one that was written stays spent");
}
