//! An algorithm that there is none of.

use sluicegate::rate_limited;

#[rate_limited("5/min", algorithm = "sliding-window")]
async fn unknown() {}

#[rate_limited("5/min", algorithm = "GCRA")]
async fn upper_case() {}

#[rate_limited("5/min burst 10", algorithm = "sliding-counter")]
async fn window_with_burst() {}

#[rate_limited("100/h", "5/min burst 10", algorithm = "fixed-window")]
async fn second_with_burst() {}

fn main() {}
