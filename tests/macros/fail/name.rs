//! Names that cannot be a policy's, or that two limits share.

use sluicegate::rate_limited;

#[rate_limited("5/min", name = "Log In")]
async fn given() {}

#[rate_limited("5/min", name = "")]
async fn empty() {}

#[rate_limited("5/min")]
#[rate_limited("100/h")]
async fn two_limits() {}

#[rate_limited("5/min", name = "login")]
#[rate_limited("100/h", name = "login")]
async fn two_names() {}

fn main() {}
