//! Parameters without their values, with values that they do not take, twice, or without commas.

use sluicegate::rate_limited;

#[rate_limited("5/min", name)]
async fn no_value() {}

#[rate_limited("5/min", cost =)]
async fn empty_value() {}

#[rate_limited("5/min", algorithm = gcra)]
async fn unquoted() {}

#[rate_limited("5/min", shadow = true)]
async fn flag_with_value() {}

#[rate_limited("5/min", cost = 2, cost = 3)]
async fn twice() {}

#[rate_limited("5/min" cost = 2)]
async fn no_comma() {}

#[rate_limited("5/min", hidden, hidden)]
async fn flag_twice() {}

#[rate_limited("5/min", crate = "sluicegate")]
async fn quoted_path() {}

#[rate_limited("5/min", key = |request| request.uri.path().to_owned())]
async fn bare_closure() {}

fn main() {}
