//! A method.

use sluicegate::rate_limited;

struct Api;

impl Api {
    #[rate_limited("5/min")]
    async fn login(&self) {}

    #[rate_limited("5/min")]
    async fn logout(self: std::sync::Arc<Self>) {}
}

trait Handlers {
    #[rate_limited("5/min")]
    async fn login(&self);
}

fn main() {}
