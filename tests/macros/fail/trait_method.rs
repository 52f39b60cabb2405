//! Methods of traits: with a default body, in the `impl` of a trait, and without anything that shows a method.

use sluicegate::rate_limited;

trait Handlers: Clone + Send + Sync + 'static {
    #[rate_limited("5/min")]
    async fn by_default(&self) -> &'static str {
        "by default"
    }

    #[rate_limited("5/min")]
    async fn without_a_body(&self);

    async fn ping() -> &'static str;

    async fn login(&self) {}
}

#[derive(Clone)]
struct Api;

impl Handlers for Api {
    async fn without_a_body(&self) {}

    #[rate_limited("5/min")]
    async fn ping() -> &'static str {
        "pong"
    }

    #[rate_limited("5/min")]
    async fn login(&self) {}
}

fn main() {}
