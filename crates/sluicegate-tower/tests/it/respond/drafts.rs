//! The fields of earlier drafts, and a wait that is said in a field of another name.

use http::{HeaderName, StatusCode};
use sluicegate_core::Policy;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::rate_limit::RateLimitLayerBuilder;
use sluicegate_tower::respond::HeaderFields;
use tower::Layer;

use crate::respond::header_modes::setting;
use crate::support::{Handler, by_header, fields, from, on, send, store};

const ALSO: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

fn builder(policy: PolicyBuilder, headers: HeaderFields) -> RateLimitLayerBuilder {
    RateLimitLayer::builder(by_header(on(&store().0, policy))).headers(headers)
}

fn layer(policy: PolicyBuilder, headers: HeaderFields) -> RateLimitLayer {
    builder(policy, headers).build().unwrap()
}

#[tokio::test]
async fn draft_6_has_a_field_for_each_number_and_its_reset_is_the_wait_of_a_refusal() {
    let policy = Policy::sliding_log("api", "2/min").and("100/h");
    let service = layer(policy, HeaderFields::Draft6).layer(Handler::default());
    let policies = "ratelimit-policy: 2;w=60, 100;w=3600";
    let told = |remaining: &str| {
        let remaining = format!("ratelimit-remaining: {remaining}");
        vec![
            "ratelimit-limit: 2".to_owned(),
            policies.to_owned(),
            remaining,
            "ratelimit-reset: 60".to_owned(),
        ]
    };
    assert_eq!(fields(&send(&service, from("ada")).await), told("1"));
    assert_eq!(fields(&send(&service, from("ada")).await), told("0"));
    let mut refused = told("0");
    refused.extend(["cache-control: no-store".to_owned(), "retry-after: 60".to_owned()]);
    refused.sort();
    assert_eq!(fields(&send(&service, from("ada")).await), refused);
}

#[tokio::test]
async fn draft_7_has_the_same_numbers_in_one_field() {
    let service = layer(Policy::gcra("api", "2/min"), HeaderFields::Draft7).layer(Handler::default());
    for (remaining, reset) in [(1, 30), (0, 60)] {
        assert_eq!(
            fields(&send(&service, from("ada")).await),
            [
                "ratelimit-policy: 2;w=60".to_owned(),
                format!("ratelimit: limit=2, remaining={remaining}, reset={reset}"),
            ]
        );
    }
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.headers()["ratelimit"], "limit=2, remaining=0, reset=30");
    assert_eq!(refused.headers()["retry-after"], "30");
}

#[tokio::test]
async fn a_window_of_less_than_a_second_is_not_in_the_policies_and_a_hidden_policy_nowhere() {
    for headers in [HeaderFields::Draft6, HeaderFields::Draft7] {
        let service = layer(Policy::gcra("api", "3/500ms"), headers).layer(Handler::default());
        let response = send(&service, from("ada")).await;
        assert!(!response.headers().contains_key("ratelimit-policy"));
        assert!(fields(&response).len() == if headers == HeaderFields::Draft6 { 3 } else { 1 });
        let service = layer(Policy::gcra("api", "3/min").hidden(), headers).layer(Handler::default());
        assert_eq!(fields(&send(&service, from("ada")).await), [""; 0]);
    }
}

#[tokio::test]
async fn fields_of_a_service_that_leave_less_stay_and_others_go() {
    let behind = async |headers, theirs| {
        let layer = layer(Policy::gcra("api", "5/min"), headers);
        let response = send(&layer.layer(setting(theirs)), from("ada")).await;
        fields(&response)
    };
    let theirs = &[("ratelimit", "limit=9, remaining=3, reset=7"), ("ratelimit-policy", "9;w=10")];
    assert_eq!(
        behind(HeaderFields::Draft7, theirs).await,
        ["ratelimit-policy: 9;w=10", "ratelimit: limit=9, remaining=3, reset=7"]
    );
    let ours = ["ratelimit-policy: 5;w=60", "ratelimit: limit=5, remaining=4, reset=12"];
    let theirs: [&[(&str, &str)]; 3] = [
        &[("ratelimit", "limit=9, remaining=7, reset=7"), ("ratelimit-policy", "9;w=10")],
        &[("ratelimit", "remaining=many"), ("ratelimit-policy", "9;w=10")],
        &[("ratelimit", r#""api";r=0;t=9"#), ("ratelimit-policy", r#""api";q=9;w=10"#)],
    ];
    for theirs in theirs {
        assert_eq!(behind(HeaderFields::Draft7, theirs).await, ours, "{theirs:?}");
    }
    let theirs = &[("ratelimit-limit", "9"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "7")];
    assert_eq!(
        behind(HeaderFields::Draft6, theirs).await,
        ["ratelimit-limit: 9", "ratelimit-remaining: 0", "ratelimit-reset: 7"]
    );
    // A list of the present draft cannot be joined with what is no list, so the tighter of the two is shown.
    let theirs = &[("ratelimit", "limit=9, remaining=0, reset=7"), ("ratelimit-policy", "9;w=10")];
    assert_eq!(
        behind(HeaderFields::Ietf, theirs).await,
        ["ratelimit-policy: 9;w=10", "ratelimit: limit=9, remaining=0, reset=7"]
    );
}

#[tokio::test]
async fn layers_of_one_draft_show_one_set_of_fields() {
    for (headers, told) in [
        (
            HeaderFields::Draft7,
            vec!["ratelimit-policy: 9;w=60, 5;w=60", "ratelimit: limit=5, remaining=4, reset=12"],
        ),
        (
            HeaderFields::Draft6,
            vec![
                "ratelimit-limit: 5",
                "ratelimit-policy: 9;w=60, 5;w=60",
                "ratelimit-remaining: 4",
                "ratelimit-reset: 12",
            ],
        ),
    ] {
        let inner = layer(Policy::gcra("inner", "5/min"), headers).layer(Handler::default());
        let service = layer(Policy::gcra("outer", "9/min"), headers).layer(inner);
        assert_eq!(fields(&send(&service, from("ada")).await), told);
    }
}

#[tokio::test]
async fn the_wait_is_repeated_in_the_field_that_is_chosen_and_exposed_with_the_others() {
    let builder = builder(Policy::gcra("api", "1/min"), HeaderFields::None).retry_after_also_in(ALSO);
    let service = builder.expose_headers().build().unwrap().layer(Handler::default());
    assert!(!send(&service, from("ada")).await.headers().contains_key(ALSO));
    let refused = send(&service, from("ada")).await;
    assert_eq!(
        (&refused.headers()[ALSO], &refused.headers()["retry-after"]),
        (&"60".parse().unwrap(), &"60".parse().unwrap())
    );
    assert_eq!(refused.headers()["access-control-expose-headers"], "retry-after, x-ratelimit-retry-after");
}

#[tokio::test]
async fn a_refusal_without_a_decision_repeats_its_wait_too_and_one_without_a_wait_repeats_nothing() {
    let denies =
        builder(Policy::gcra("api", "1/min"), HeaderFields::None).retry_after_also_in(ALSO).deny(|_| true);
    let denied = send(&denies.build().unwrap().layer(Handler::default()), from("ada")).await;
    assert!(!denied.headers().contains_key(ALSO) && denied.status() == StatusCode::FORBIDDEN);
    // As many wait as may: the wait for the turn is told.
    let policy = Policy::gcra("api", "1/min").wait_up_to(std::time::Duration::from_secs(90));
    let builder = builder(policy, HeaderFields::None).retry_after_also_in(ALSO).longest_queue(0);
    let service = builder.build().unwrap().layer(Handler::default());
    send(&service, from("ada")).await;
    let full = send(&service, from("ada")).await;
    assert_eq!(
        (full.status(), &full.headers()[ALSO]),
        (StatusCode::SERVICE_UNAVAILABLE, &"60".parse().unwrap())
    );
}
