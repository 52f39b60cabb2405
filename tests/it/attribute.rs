//! `#[rate_limited]` over sockets: the body of a real connection, which can be read once, and whoever answers reads it.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::any;
use sluicegate::attribute::RateLimitStore;
use sluicegate::limiter::{Override, Overrides};
use sluicegate::respond::HeaderFields;
use sluicegate::{Decided, rate_limited};
use sluicegate_tests::memory::store;

use crate::support::{Client, field, serve};

#[derive(Clone)]
struct Api {
    greeting: &'static str,
}

impl Api {
    #[rate_limited("2/min", name = "stored", fallback = Self::later)]
    async fn stored(&self, body: Bytes) -> String {
        format!("{} {}", self.greeting, body.len())
    }

    async fn later(State(api): State<Self>, decided: Decided, body: Bytes) -> (StatusCode, String) {
        let left = decided.remaining();
        (StatusCode::ACCEPTED, format!("{} {}, later, {left} left", api.greeting, body.len()))
    }

    #[rate_limited("1/min", name = "unread", fallback = Self::busy)]
    async fn unread() {}

    async fn busy() -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

#[tokio::test]
async fn a_fallback_reads_the_body_or_leaves_it_and_the_connection_stays_open() {
    let (store, _) = store();
    let limits = RateLimitStore::new(&store).configure(|limits| limits.headers(HeaderFields::All));
    let limits = limits.open(Api::stored).unwrap().open(Api::unread).unwrap();
    let app = Router::new()
        .route("/stored", any(Api::stored))
        .route("/unread", any(Api::unread))
        .layer(limits)
        .with_state(Api { greeting: "hello" });
    let mut client = Client::connect(serve(app).await).await;
    for (path, status, body) in [
        ("/stored", 200, "hello 30"),
        ("/unread", 200, ""),
        ("/unread", 503, ""),
        ("/stored", 200, "hello 30"),
        ("/stored", 202, "hello 30, later, 0 left"),
        ("/unread", 503, ""),
        ("/stored", 202, "hello 30, later, 0 left"),
    ] {
        let response = client.post(path).await;
        assert_eq!((response.status().as_u16(), &**response.body()), (status, body.as_bytes()), "{path}");
        assert_eq!(response.headers().contains_key("retry-after"), status == 503, "{path}");
        assert!(field(&response, "ratelimit").contains(";r="), "{path}");
    }
}

#[tokio::test]
async fn the_policy_of_an_attribute_is_overridden_by_its_name() {
    let (store, clock) = store();
    let limits = RateLimitStore::new(&store).open(Api::unread).unwrap();
    let app =
        Router::new().route("/unread", any(Api::unread)).layer(limits).with_state(Api { greeting: "hello" });
    let mut client = Client::connect(serve(app).await).await;
    let overrides = Overrides::of(&store);
    let more = Override::builder("unread", "ada").quota("2/min").lasting(Duration::from_secs(10));
    let mut statuses = Vec::new();
    for step in 0..5 {
        match step {
            2 => drop(overrides.put(more.clone()).await.unwrap()),
            4 => clock.advance(Duration::from_secs(10)),
            _ => {}
        }
        statuses.push(client.post("/unread").await.status().as_u16());
    }
    assert_eq!(statuses, [200, 503, 200, 503, 503]);
}
