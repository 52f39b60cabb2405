//! Costs that let everything pass, or nothing.

use sluicegate::rate_limited;

#[rate_limited("5/min", cost = 0)]
async fn zero() {}

#[rate_limited("5/min", cost = 6)]
async fn above_limit() {}

#[rate_limited("100/h", "10/s burst 2", cost = 3)]
async fn above_smallest_burst() {}

#[rate_limited("5/min", cost = -1)]
async fn negative() {}

#[rate_limited("5/min", cost = 1.5)]
async fn fraction() {}

#[rate_limited("5/min", cost = "2")]
async fn text() {}

fn main() {}
