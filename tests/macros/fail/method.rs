//! Methods that cannot be handlers: with a state of their own, or one that no router has.

use axum::Router;
use axum::routing::get;
use sluicegate::rate_limited;

struct Api;

impl Api {
    #[rate_limited("5/min")]
    async fn login(&mut self) {}

    #[rate_limited("5/min")]
    async fn logout(self: &mut Self) {}
}

/// No `Clone`, so no router has it as its state.
struct NotClone;

impl NotClone {
    #[rate_limited("5/min")]
    async fn login(&self) {}
}

struct Of<T>(T);

impl<T: Send + Sync + 'static> Of<T> {
    /// Nothing shows that it is in an `impl`.
    #[rate_limited("5/min")]
    async fn hidden(axum::extract::State(_): axum::extract::State<std::sync::Arc<T>>) {}
}

fn main() {
    let _: Router<NotClone> = Router::new().route("/", get(NotClone::login));
}
