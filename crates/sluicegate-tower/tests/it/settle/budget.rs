//! Many streams at once on one budget.

use http::Response;
use sluicegate_tests::streams::{play, stream};
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::settle::{OnAbort, Settle};
use tower::Layer;

use crate::settle::{answering, sent, tokens, used};

#[tokio::test]
async fn streams_are_admitted_as_counted_by_hand_and_never_use_more_than_the_budget() {
    for seed in 0..32 {
        for (on_abort, pays_seen) in [(OnAbort::Reserved, false), (OnAbort::Seen, true)] {
            let settle = Settle::sse("usage.total_tokens").unwrap().on_abort(on_abort);
            let (limiter, limit, _) = tokens(settle);
            let layer = RateLimitLayer::new(limit).settling();
            let send = async |cost| {
                let response = sent(layer.layer(answering(move || Response::new(stream(cost))))).await;
                (response.status() == 200).then(|| response.into_body())
            };
            play(seed, pays_seen, send, async |_| used(&limiter)).await;
        }
    }
}
