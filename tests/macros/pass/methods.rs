//! Methods and functions in `impl` blocks, under strict lints and with other attributes.
#![deny(warnings)]
#![deny(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused,
    private_interfaces,
    private_bounds
)]

#[path = "../support.rs"]
mod support;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::get;
use sluicegate::attribute::RateLimitStore;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[derive(Clone, Debug)]
struct Api {
    greeting: &'static str,
}

impl Api {
    /// Documented.
    #[rate_limited("1/min")]
    #[tracing::instrument(skip(self))]
    #[must_use]
    async fn greet(&self, Path(name): Path<String>) -> impl IntoResponse {
        std::future::ready(()).await;
        format!("{} {name}", self.greeting)
    }

    #[tracing::instrument(skip_all)]
    #[rate_limited("1/min", fallback = Self::busy)]
    async fn above(&self) -> &'static str {
        self.greeting
    }

    async fn busy() -> &'static str {
        "busy"
    }

    #[rate_limited("1/min")]
    #[axum::debug_handler]
    async fn function(State(_): State<Api>, Path(id): Path<u8>) -> Result<String, String> {
        if id == 0 {
            Err("zero")?
        }
        Ok(id.to_string())
    }

    #[rate_limited("1/min")]
    async fn with_parameter<T: Default + ToString>(self) -> String {
        let Self { greeting } = self;
        format!("{greeting} {}", T::default().to_string())
    }

    #[rate_limited("1/min")]
    #[cfg(any())]
    async fn never(&self) -> NoSuchType {}

    #[rate_limited("1/min", name = "conditional")]
    async fn conditional(
        &self,
        #[cfg(any())] missing: NoSuchType,
        #[cfg(all())] Path(id): Path<u8>,
    ) -> String {
        format!("{} {id}", self.greeting)
    }

    #[rate_limited("1/min")]
    #[allow(dead_code)]
    async fn unused(&self) {}
}

fn main() {
    let limits = RateLimitStore::new(&MemoryStore::new()).open(Api::greet).unwrap().open(Api::above).unwrap();
    let app = Router::new()
        .route("/greet/{name}", get(Api::greet))
        .route("/above", get(Api::above))
        .layer(limits)
        .route("/function/{id}", get(Api::function))
        .route("/parameter", get(Api::with_parameter::<u8>))
        .route("/conditional/{id}", get(Api::conditional))
        .with_rate_limits(&MemoryStore::new())
        .with_state(Api { greeting: "hello" });
    support::run(async {
        assert_eq!(support::get(&app, "/greet/ada").await.text, "hello ada");
        assert_eq!(support::get(&app, "/above").await.text, "hello");
        assert_eq!(support::get(&app, "/above").await.text, "busy");
        assert_eq!(support::get(&app, "/function/7").await.text, "7");
        assert_eq!(support::get(&app, "/parameter").await.text, "hello 0");
        assert_eq!(support::get(&app, "/conditional/8").await.text, "hello 8");
        assert_eq!(support::statuses(&app, "/conditional/8", 1).await, [429]);
    });
}
