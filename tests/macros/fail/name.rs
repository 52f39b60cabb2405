//! Names that cannot be a policy's, given or taken from the function, or that two limits share.

use sluicegate::rate_limited;

#[rate_limited("5/min", name = "Log In")]
async fn given() {}

#[allow(non_snake_case)]
#[rate_limited("5/min")]
async fn logIn() {}

#[rate_limited("5/min")]
async fn _taken() {}

#[rate_limited("5/min", name = "")]
async fn empty() {}

#[rate_limited("5/min")]
#[rate_limited("100/h")]
async fn two_limits() {}

fn main() {}
