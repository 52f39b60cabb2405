//! Parameters that there are none of, with the one that was probably meant.

use sluicegate::rate_limited;

#[rate_limited("5/min", algoritm = "gcra")]
async fn misspelt() {}

#[rate_limited("5/min", onExceeded = "deny")]
async fn in_camel_case() {}

#[rate_limited("5/min", weight = 2)]
async fn nothing_like_it() {}

#[rate_limited("5/min", Shadow)]
async fn upper_case_flag() {}

fn main() {}
