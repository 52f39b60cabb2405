//! No quota at all, or one that is not a string.

use sluicegate::rate_limited;

#[rate_limited]
async fn bare() {}

#[rate_limited()]
async fn empty() {}

#[rate_limited(cost = 2)]
async fn only_cost() {}

#[rate_limited(5/min)]
async fn unquoted() {}

#[rate_limited(["5/min"])]
async fn list() {}

#[rate_limited("5/min", name = "a")]
#[rate_limited]
async fn bare_below() {}

fn main() {}
