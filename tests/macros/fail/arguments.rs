//! Arguments that no handler can have.

use sluicegate::rate_limited;

#[rate_limited("5/min")]
async fn reference(name: &str) {
    _ = name;
}

#[rate_limited("5/min")]
async fn opaque(name: impl Into<String>) {
    _ = name;
}

#[rate_limited("5/min")]
async fn lifetime<'a>(name: std::borrow::Cow<'a, str>) {
    _ = name;
}

fn main() {}
