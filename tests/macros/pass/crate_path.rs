//! The crate under another name, as behind a crate that re-exports it.
#![deny(warnings)]

#[path = "../support.rs"]
mod support;

pub extern crate sluicegate as gate;

mod web {
    pub mod deep {
        pub use gate as limits;
    }
}

use axum::Router;
use axum::routing::get;
use web::deep::limits::{MemoryStore, RateLimitExt, rate_limited};

#[rate_limited("1/min", crate = crate::web::deep::limits)]
async fn one() {}

#[rate_limited("1/min", name = "a", crate = gate)]
#[rate_limited("1/h", name = "b")]
async fn two() {}

fn main() {
    let app: Router = Router::new().route("/one", get(one)).route("/two", get(two));
    let app = app.with_rate_limits(&MemoryStore::new());
    support::run(async {
        assert_eq!(support::statuses(&app, "/one", 2).await, [200, 429]);
        assert_eq!(support::statuses(&app, "/two", 2).await, [200, 429]);
    });
}
