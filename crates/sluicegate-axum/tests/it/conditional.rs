//! Arguments under a `#[cfg]`.

use axum::Router;
use axum::extract::Path;
use axum::http::Method;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, rate_limited};

use crate::support::{get as ask, statuses, store};

#[rate_limited("2/min", crate = sluicegate_axum)]
async fn first(#[cfg(any())] missing: NoSuchType, Path(id): Path<u8>) -> String {
    id.to_string()
}

#[rate_limited("2/min", name = "last", crate = sluicegate_axum)]
#[rate_limited("100/h", name = "last.hour")]
async fn last(
    #[cfg(not(any()))] method: Method,
    #[cfg(any(test, feature = "macros"))]
    #[cfg(not(any()))]
    Path(id): Path<u8>,
    #[cfg(any())] missing: NoSuchType,
) -> String {
    format!("{method} {id}")
}

#[rate_limited("1/min", crate = sluicegate_axum)]
async fn none(#[cfg(any())] missing: NoSuchType) {}

#[tokio::test]
async fn an_argument_is_there_if_its_condition_holds() {
    let app = Router::new()
        .route("/first/{id}", get(first))
        .route("/last/{id}", get(last))
        .route("/none", get(none))
        .with_rate_limits(store());
    assert_eq!(ask(&app, "/first/7").await.body, "7");
    assert_eq!(ask(&app, "/last/8").await.body, "GET 8");
    assert_eq!(statuses(&app, "/last/8", 2).await, [200, 429]);
    assert_eq!(statuses(&app, "/none", 2).await, [200, 429]);
}
