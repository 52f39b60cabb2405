//! A quota that is none: each is named, with what would be one.

use sluicegate::rate_limited;

#[rate_limited("5/fortnight")]
async fn unit() {}

#[rate_limited("5")]
async fn no_period() {}

#[rate_limited("0/min")]
async fn limit_zero() {}

#[rate_limited("5/0s")]
async fn period_zero() {}

#[rate_limited("5/min burst 0")]
async fn burst_zero() {}

#[rate_limited("100/h", "10/mim")]
async fn second() {}

#[rate_limited("")]
async fn empty() {}

fn main() {}
