//! A quota that no integers can keep.

use sluicegate::rate_limited;

#[rate_limited("18446744073709551615/w")]
async fn too_large() {}

#[rate_limited("18446744073709551616/w")]
async fn much_too_large() {}

#[rate_limited("100000000/h", algorithm = "sliding-log")]
async fn too_long_a_log() {}

fn main() {}
