//! Functions that are not `async`.

use sluicegate::rate_limited;

#[rate_limited("5/min")]
fn plain() -> &'static str {
    "hello"
}

#[rate_limited("5/min")]
pub(crate) fn future() -> impl Future<Output = ()> {
    async {}
}

fn main() {}
