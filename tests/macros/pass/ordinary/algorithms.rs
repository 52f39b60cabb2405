//! Every algorithm by its name.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

macro_rules! handlers {
    ($($name:ident $algorithm:literal $quota:literal,)*) => {
        $(
            #[rate_limited($quota, algorithm = $algorithm)]
            async fn $name() {}
        )*

        fn app() -> Router {
            Router::new()$(.route(concat!("/", stringify!($name)), get($name)))*
        }

        const PATHS: &[&str] = &[$(concat!("/", stringify!($name))),*];
    };
}

handlers! {
    fixed_window "fixed-window" "1/30d",
    first_hit "fixed-window-from-first-hit" "1/h",
    sliding_log "sliding-log" "1/h",
    sliding_counter "sliding-counter" "1/h",
    token_bucket "token-bucket" "5/h burst 1",
    token_bucket_interval "token-bucket-interval" "1/h",
    token_bucket_aligned "token-bucket-aligned" "1/30d",
    leaky_bucket "leaky-bucket" "5/h burst 1",
    gcra "gcra" "5/h burst 1",
}

// A queue spaces what it passes, so it waits.
#[rate_limited("1000/s burst 3", algorithm = "leaky-bucket-queue", on_exceeded = "wait 1s")]
async fn queue() {}

#[rate_limited("1000/s burst 3", algorithm = "leaky-bucket-queue-above-1", on_exceeded = "wait 1s")]
async fn queue_above() {}

pub(crate) fn main() {
    let app = app().route("/queue", get(queue)).route("/queue_above", get(queue_above));
    let app = app.with_rate_limits(&MemoryStore::new());
    support::run(async {
        for path in PATHS {
            assert_eq!(support::statuses(&app, path, 2).await, [200, 429], "{path}");
        }
        assert_eq!(support::statuses(&app, "/queue", 3).await, [200; 3]);
        assert_eq!(support::statuses(&app, "/queue_above", 3).await, [200; 3]);
    });
}
