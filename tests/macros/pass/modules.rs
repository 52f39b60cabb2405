//! Handlers in modules, with every visibility, beside modules of their own names, and inside functions.
#![deny(warnings)]

#[path = "../support.rs"]
mod support;

use axum::Router;
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

mod handlers {
    use sluicegate::rate_limited;

    pub mod login {
        #[super::rate_limited("1/min")]
        pub async fn login() -> &'static str {
            "login"
        }
    }

    #[rate_limited("1/min")]
    pub(crate) async fn within_crate() {}

    pub mod deep {
        #[sluicegate::rate_limited("1/min")]
        pub(in crate::handlers) async fn hidden() {}

        #[sluicegate::rate_limited("1/min")]
        pub(super) async fn above() {}
    }

    pub(crate) use within_crate as renamed;

    pub(crate) fn above_route() -> axum::routing::MethodRouter {
        axum::routing::get(deep::above)
    }

    pub(crate) fn hidden_route() -> axum::routing::MethodRouter {
        axum::routing::get(deep::hidden)
    }
}

mod login {
    pub const BESIDE: u8 = 1;
}
use handlers::login::login;

fn main() {
    #[rate_limited("1/min")]
    async fn local() {}

    let app: Router = Router::new()
        .route("/login", get(login))
        .route("/within_crate", get(handlers::within_crate))
        .route("/renamed", get(handlers::renamed))
        .route("/hidden", handlers::hidden_route())
        .route("/above", handlers::above_route())
        .route("/local", get(local))
        .with_rate_limits(&MemoryStore::new());
    assert_eq!(login::BESIDE, 1);
    support::run(async {
        for path in ["/login", "/within_crate", "/above", "/hidden", "/local"] {
            assert_eq!(support::statuses(&app, path, 2).await, [200, 429], "{path}");
        }
        assert_eq!(support::statuses(&app, "/renamed", 1).await, [429], "`within_crate` by another name");
    });
}
