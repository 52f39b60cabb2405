//! Waits that are none, or too long.

use sluicegate::rate_limited;

#[rate_limited("5/min", on_exceeded = "wait")]
async fn how_long() {}

#[rate_limited("5/min", on_exceeded = "wait 5 parsecs")]
async fn unit() {}

#[rate_limited("5/min", on_exceeded = "wait 0s")]
async fn zero() {}

#[rate_limited("5/min", on_exceeded = "reject")]
async fn word() {}

#[rate_limited("5/min", on_exceeded = "wait 5s burst 2")]
async fn burst() {}

#[rate_limited("5/min", on_exceeded = 5)]
async fn number() {}

#[rate_limited("5/min", on_exceeded = "wait 61min")]
async fn too_long() {}

#[rate_limited("5/min", on_exceeded = "wait 2d")]
async fn days() {}

fn main() {}
