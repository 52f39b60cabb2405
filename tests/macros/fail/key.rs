//! Keys that are none.

use sluicegate::rate_limited;

use sluicegate::key::HeaderKey;

#[rate_limited("5/min", key = "x-api-key")]
async fn text() {}

#[rate_limited("5/min", key = HeaderKey::new)]
async fn constructor() {}

#[rate_limited("5/min", key = HeaderKey::new("x-api-key").ok())]
async fn option() {}

fn main() {}
