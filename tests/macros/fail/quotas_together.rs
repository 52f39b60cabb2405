//! Quotas that are good alone and do not go together.

use sluicegate::rate_limited;

#[rate_limited("5/min", "7/60s")]
async fn same_period() {}

#[rate_limited("2/s burst 5", "100/h", algorithm = "leaky-bucket-queue")]
async fn two_queues() {}

#[rate_limited(
    "1/s", "2/2s", "3/3s", "4/4s", "5/5s", "6/6s", "7/7s", "8/8s", "9/9s", "10/10s", "11/11s", "12/12s",
    "13/13s", "14/14s", "15/15s", "16/16s", "17/17s"
)]
async fn seventeen() {}

#[rate_limited("1/s", "2/2s", "3/3s", "4/4s", "5/5s", "6/6s", "7/7s", "8/8s", "9/9s", name = "a")]
#[rate_limited("1/s", "2/2s", "3/3s", "4/4s", "5/5s", "6/6s", "7/7s", "8/8s", name = "b")]
async fn nine_and_eight() {}

fn main() {}
