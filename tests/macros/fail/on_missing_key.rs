//! Words and statuses for a missing key that are none.

use sluicegate::rate_limited;

#[rate_limited("5/min", on_missing_key = "ignore")]
async fn word() {}

#[rate_limited("5/min", on_missing_key = "shared")]
async fn nearly() {}

#[rate_limited("5/min", on_missing_key = 200)]
async fn success() {}

#[rate_limited("5/min", on_missing_key = 4010)]
async fn no_status() {}

#[rate_limited("5/min", on_missing_key = true)]
async fn flag() {}

fn main() {}
