//! In a crate that forbids what it can: what the attribute makes neither warns nor asks for an exception.
#![forbid(
    warnings,
    unused,
    nonstandard_style,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unnameable_types,
    unsafe_code,
    single_use_lifetimes,
    trivial_casts,
    unused_qualifications,
    unused_results,
    let_underscore_drop
)]

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use sluicegate::key::HeaderKey;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

/// Public, in a module that is not.
mod handlers {
    use sluicegate::rate_limited;

    #[rate_limited("1/min")]
    pub(super) async fn one() {}
}

#[rate_limited("1/min", "2/h", key = HeaderKey::new("x-api-key"), cost = 1, on_missing_key = 401, on_exceeded = "wait 1s")]
async fn all(State(state): State<u8>, Path(id): Path<u8>) -> Result<String, String> {
    Ok(format!("{state} {id}"))
}

#[rate_limited("1/min")]
async fn generic<T: Send + Sync + 'static>() -> &'static str {
    std::any::type_name::<T>()
}

fn main() {
    let _app: Router = Router::new()
        .route("/one", get(handlers::one))
        .route("/all/{id}", get(all))
        .route("/generic", get(generic::<u8>))
        .with_rate_limits(&MemoryStore::new())
        .with_state(1);
}
