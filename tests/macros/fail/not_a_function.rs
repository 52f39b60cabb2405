//! What is no function.

use sluicegate::rate_limited;

#[rate_limited("5/min")]
struct Login;

#[rate_limited("5/min")]
pub mod handlers {}

#[rate_limited("5/min")]
const LIMIT: u64 = 5;

#[rate_limited("5/min")]
impl Login {}

#[rate_limited("5/min")]
use std::fmt;

fn main() {}
