//! Quotas from a constant or the environment that are written wrongly, or whose default is wrong.

use sluicegate::rate_limited;

const MINUTES: u64 = 5;

#[rate_limited(quota)]
async fn nothing() {}

#[rate_limited(quota = 5)]
async fn number() {}

#[rate_limited(quota = MINUTES)]
async fn no_quota() {}

#[rate_limited(quota = env())]
async fn no_variable() {}

#[rate_limited(quota = env(LOGIN_LIMIT))]
async fn no_string() {}

#[rate_limited(quota = env("LOGIN=LIMIT"))]
async fn no_name() {}

#[rate_limited(quota = env("LOGIN_LIMIT", "5/min", "6/min"))]
async fn too_many() {}

#[rate_limited(quota = env("LOGIN_LIMIT", "5/fortnight"))]
async fn wrong_default() {}

#[rate_limited(quota = env("LOGIN_LIMIT", "5/min"), cost = 6)]
async fn too_costly() {}

#[rate_limited(quota = "5/fortnight")]
async fn wrong_text() {}

fn main() {}
