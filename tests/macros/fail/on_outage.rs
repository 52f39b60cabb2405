//! Words for an outage that are none.

use sluicegate::rate_limited;

#[rate_limited("5/min", on_outage = "fail")]
async fn word() {}

#[rate_limited("5/min", on_outage = "locally")]
async fn nearly() {}

fn main() {}
