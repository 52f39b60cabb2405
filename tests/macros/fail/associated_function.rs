//! A function without `self` in an `impl`: the attribute cannot see that it is in one.

use sluicegate::rate_limited;

struct Api;

impl Api {
    #[rate_limited("5/min")]
    async fn login() {}
}

fn main() {}
