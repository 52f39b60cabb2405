//! All mistakes of one attribute at once, and of both attributes of a handler.

use sluicegate::rate_limited;

#[rate_limited("5/fortnight", name = "Log In", on_exceeded = "reject", on_outage = "fail")]
async fn one() {}

#[rate_limited("0/min", name = "a")]
#[rate_limited("5/min", name = "b", cost = 9)]
fn two(&self) {}

fn main() {}
