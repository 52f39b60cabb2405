//! The fields of OpenAI's API.

use std::time::Duration;

use sluicegate_core::Policy;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::respond::HeaderFields;
use tower::Layer;

use crate::respond::header_modes::setting;
use crate::support::{Handler, by_header, fields, from, on, send, store};

/// Sixty requests and ten thousand tokens a minute, of which each request takes five hundred; at most as many again in an hour.
fn layer() -> RateLimitLayer {
    let (store, _) = store();
    let requests = by_header(on(&store, Policy::gcra("requests", "60/min")));
    let tokens = Policy::fixed_window("tokens", "10000/min").and("20000/h");
    let tokens = by_header(on(&store, tokens)).cost(500).unwrap();
    let hidden = by_header(on(&store, Policy::gcra("flood", "100/s").hidden()));
    RateLimitLayer::builder(requests).and(tokens).and(hidden).headers(HeaderFields::OpenAi).build().unwrap()
}

fn named([requests, tokens]: [[&str; 3]; 2]) -> Vec<String> {
    let words = ["limit", "remaining", "reset"];
    let of = |policy: &str, values: [&str; 3]| {
        words
            .iter()
            .zip(values)
            .map(|(word, value)| format!("x-ratelimit-{word}-{policy}: {value}"))
            .collect::<Vec<_>>()
    };
    let mut all = [of("requests", requests), of("tokens", tokens)].concat();
    all.sort();
    all
}

#[tokio::test]
async fn each_policy_has_three_fields_that_end_in_its_name() {
    let told = fields(&send(&layer().layer(Handler::default()), from("ada")).await);
    assert_eq!(told, named([["60", "59", "1s"], ["10000", "9500", "1m0s"]]));
}

#[tokio::test]
async fn fields_of_an_upstream_that_leave_less_stay() {
    let tokens = async |theirs| {
        let told = fields(&send(&layer().layer(setting(theirs)), from("ada")).await);
        told.into_iter().filter(|line| line.contains("-tokens")).collect::<Vec<_>>()
    };
    let told = tokens(&[("x-ratelimit-limit-tokens", "90"), ("x-ratelimit-remaining-tokens", "80")]).await;
    assert_eq!(told, ["x-ratelimit-limit-tokens: 90", "x-ratelimit-remaining-tokens: 80"]);
    let told =
        tokens(&[("x-ratelimit-limit-tokens", "99999"), ("x-ratelimit-remaining-tokens", "9999")]).await;
    let ours = [
        "x-ratelimit-limit-tokens: 10000",
        "x-ratelimit-remaining-tokens: 9500",
        "x-ratelimit-reset-tokens: 1m0s",
    ];
    assert_eq!(told, ours);
}

#[tokio::test]
async fn a_reset_is_written_in_hours_minutes_and_seconds() {
    for (quota, reset) in [("1/45s", "45s"), ("1/6min", "6m0s"), ("1/h", "1h0m0s"), ("2/90500ms", "46s")] {
        let (store, _) = store();
        let limit = by_header(on(&store, Policy::gcra("tokens", quota)));
        let layer = RateLimitLayer::builder(limit).headers(HeaderFields::OpenAi).build().unwrap();
        let told = fields(&send(&layer.layer(Handler::default()), from("ada")).await);
        assert!(told.contains(&format!("x-ratelimit-reset-tokens: {reset}")), "{told:?}");
    }
}

#[tokio::test]
async fn a_refusal_has_them_and_retry_after() {
    let (store, clock) = store();
    let limit = by_header(on(&store, Policy::fixed_window("tokens", "1/min")));
    let layer = RateLimitLayer::builder(limit).headers(HeaderFields::OpenAi).build().unwrap();
    let service = layer.layer(Handler::default());
    send(&service, from("ada")).await;
    clock.advance(Duration::from_secs(20));
    let told = fields(&send(&service, from("ada")).await);
    let expected = [
        "cache-control: no-store",
        "retry-after: 40",
        "x-ratelimit-limit-tokens: 1",
        "x-ratelimit-remaining-tokens: 0",
        "x-ratelimit-reset-tokens: 40s",
    ];
    assert_eq!(told, expected);
}
