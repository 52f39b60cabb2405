//! The fields and the body of a response, literally: what clients parse must not change unnoticed.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::Policy;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::respond::HeaderFields;
use tower::Layer;

use crate::support::{Body, Handler, by_header, described, fields, from, number, on, problem, send, store};

type Service = RateLimit<Handler>;

/// The service behind these policies, all with the same key.
fn behind<const N: usize>(headers: HeaderFields, policies: [PolicyBuilder; N]) -> (Service, ManualClock) {
    let (store, clock) = store();
    let mut limits = policies.into_iter().map(|policy| by_header(on(&store, policy)));
    let builder = RateLimitLayer::builder(limits.next().expect("at least one policy"));
    let layer = limits.fold(builder, |builder, limit| builder.and(limit)).headers(headers).build().unwrap();
    (layer.layer(Handler::default()), clock)
}

/// The fields of the first response and of the first refusal.
async fn allowed_and_refused<S>(service: &S) -> (Vec<String>, Vec<String>)
where
    S: tower::Service<Request<()>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let allowed = send(service, from("ada")).await;
    assert_eq!(allowed.status(), StatusCode::OK);
    for _ in 0..100 {
        let response = send(service, from("ada")).await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            return (fields(&allowed), fields(&response));
        }
    }
    panic!("nothing was refused");
}

/// A window of a minute, 18 seconds after it began.
async fn window(headers: HeaderFields) -> (Vec<String>, Vec<String>) {
    let (service, clock) = behind(headers, [Policy::fixed_window("login", "5/min")]);
    clock.advance(Duration::from_millis(18_100));
    allowed_and_refused(&service).await
}

#[tokio::test]
async fn each_choice_shows_its_fields_and_a_refusal_always_says_when_to_come_back() {
    let shown = |left: u64, [is_legacy, is_ietf]: [bool; 2]| {
        let legacy = [
            "x-ratelimit-limit: 5".to_owned(),
            format!("x-ratelimit-remaining: {left}"),
            "x-ratelimit-reset: 42".to_owned(),
        ];
        let ietf = [
            r#"ratelimit-policy: "login";q=5;w=60"#.to_owned(),
            format!(r#"ratelimit: "login";r={left};t=42"#),
        ];
        let legacy = legacy.into_iter().filter(move |_| is_legacy);
        ietf.into_iter().filter(move |_| is_ietf).chain(legacy)
    };
    for (headers, allowed, refused) in [
        (HeaderFields::All, [true, true], [true, true]),
        (HeaderFields::Legacy, [true, false], [true, false]),
        (HeaderFields::Ietf, [false, true], [false, true]),
        (HeaderFields::None, [false, false], [false, false]),
        (HeaderFields::default(), [true, false], [true, true]),
    ] {
        let told = window(headers).await;
        assert_eq!(told.0, shown(4, allowed).collect::<Vec<_>>(), "{headers}");
        let always = ["cache-control: no-store", "retry-after: 42"].map(str::to_owned);
        let mut expected: Vec<_> = shown(0, refused).chain(always).collect();
        expected.sort();
        assert_eq!(told.1, expected, "{headers}");
    }
}

#[tokio::test]
async fn a_cost_that_can_never_pass_is_refused_with_all_fields_by_default() {
    let (store, _) = store();
    let report = by_header(on(&store, Policy::gcra("report", "5/min"))).cost_fn(|_| 6);
    let refused = fields(&send(&RateLimitLayer::new(report).layer(Handler::default()), from("ada")).await);
    assert!(refused.contains(&r#"ratelimit: "report";r=5"#.to_owned()), "{refused:?}");
}

#[tokio::test]
async fn by_default_a_layer_around_one_that_refuses_shows_all_fields_of_both() {
    let (store, _) = store();
    let layer = |name, quota| RateLimitLayer::new(by_header(on(&store, Policy::gcra(name, quota))));
    let service = layer("outer", "10/min").layer(layer("inner", "1/min").layer(Handler::default()));
    let (allowed, refused) = allowed_and_refused(&service).await;
    assert_eq!(allowed, ["x-ratelimit-limit: 1", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 60"]);
    for line in [
        r#"ratelimit-policy: "outer";q=10;w=60, "inner";q=1;w=60"#,
        // The outer one has given its unit back.
        r#"ratelimit: "outer";r=9;t=6, "inner";r=0;t=60"#,
        "x-ratelimit-limit: 1",
        "retry-after: 60",
    ] {
        assert!(refused.contains(&line.to_owned()), "{refused:?}");
    }
}

#[tokio::test]
async fn a_bucket_is_its_burst_in_the_time_that_refills_it() {
    let (service, _) = behind(HeaderFields::All, [Policy::gcra("search", "10/s burst 20")]);
    let (allowed, refused) = allowed_and_refused(&service).await;
    assert_eq!(
        allowed,
        [
            r#"ratelimit-policy: "search";q=20;w=2"#,
            r#"ratelimit: "search";r=19;t=1"#,
            "x-ratelimit-limit: 20",
            "x-ratelimit-remaining: 19",
            "x-ratelimit-reset: 1",
        ]
    );
    assert_eq!(
        refused,
        [
            "cache-control: no-store",
            r#"ratelimit-policy: "search";q=20;w=2"#,
            r#"ratelimit: "search";r=0;t=1"#,
            "retry-after: 1",
            "x-ratelimit-limit: 20",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 2",
        ]
    );
}

#[tokio::test]
async fn of_several_quotas_all_are_named_and_the_tightest_speaks() {
    let payment = Policy::fixed_window("payment", "5/min").and("2/10s");
    let (service, clock) = behind(HeaderFields::All, [payment]);
    clock.advance(Duration::from_secs(4));
    let (allowed, refused) = allowed_and_refused(&service).await;
    let policy = r#"ratelimit-policy: "payment.1min";q=5;w=60, "payment.10s";q=2;w=10"#;
    assert_eq!(
        allowed,
        [
            policy,
            r#"ratelimit: "payment.1min";r=4;t=56, "payment.10s";r=1;t=6"#,
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 6",
        ]
    );
    assert_eq!(
        refused,
        [
            "cache-control: no-store",
            policy,
            // Nothing is said of the 56 seconds of the quota that has room: Retry-After must not be before any `t`.
            r#"ratelimit: "payment.1min";r=3, "payment.10s";r=0;t=6"#,
            "retry-after: 6",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 6",
        ]
    );
}

#[tokio::test]
async fn of_several_limits_all_are_named_and_the_tightest_speaks() {
    // Just after the next window began, the unit of this one weighs less than one, and so nothing.
    let policies = [Policy::gcra("address", "60/min burst 3"), Policy::sliding_counter("account", "2/h")];
    let (service, _) = behind(HeaderFields::All, policies);
    let (allowed, refused) = allowed_and_refused(&service).await;
    let policy = r#"ratelimit-policy: "address";q=3;w=3, "account";q=2;w=3600"#;
    assert_eq!(
        allowed,
        [
            policy,
            r#"ratelimit: "address";r=2;t=1, "account";r=1;t=3601"#,
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 3601",
        ]
    );
    assert_eq!(
        refused,
        [
            "cache-control: no-store",
            policy,
            r#"ratelimit: "address";r=1;t=1, "account";r=0;t=3601"#,
            "retry-after: 3601",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 5401",
        ]
    );
}

#[tokio::test]
async fn windows_below_a_second_are_left_out_and_longer_ones_rounded_up() {
    for (quota, policy) in [
        ("3/500ms", r#"ratelimit-policy: "api";q=3"#),
        ("1/999999us", r#"ratelimit-policy: "api";q=1"#),
        ("3/s", r#"ratelimit-policy: "api";q=3;w=1"#),
        ("3/1001ms", r#"ratelimit-policy: "api";q=3;w=2"#),
        ("3/500ms burst 7", r#"ratelimit-policy: "api";q=7;w=2"#),
    ] {
        let (service, _) = behind(HeaderFields::Ietf, [Policy::gcra("api", quota)]);
        let (_, refused) = allowed_and_refused(&service).await;
        assert!(refused.contains(&policy.to_owned()), "{quota}: {refused:?}");
        assert!(refused.contains(&"retry-after: 1".to_owned()), "{quota}: {refused:?}");
    }
}

#[tokio::test]
async fn a_wait_is_rounded_up_to_whole_seconds() {
    for (elapsed_us, seconds) in [(0, 2), (1, 2), (499_999, 2), (500_000, 1), (500_001, 1), (1_499_999, 1)] {
        let (service, clock) = behind(HeaderFields::All, [Policy::gcra("api", "1/1500ms")]);
        send(&service, from("ada")).await;
        clock.advance(Duration::from_micros(elapsed_us));
        let refused = send(&service, from("ada")).await;
        for name in ["retry-after", "x-ratelimit-reset"] {
            assert_eq!(number(&refused, name), Some(seconds), "{name} after {elapsed_us} us");
        }
        assert_eq!(described(&refused, "ratelimit").unwrap()[0].1["t"], seconds);
    }
}

#[tokio::test]
async fn a_refusal_explains_itself_as_the_draft_defines() {
    let payment = Policy::fixed_window("payment", "5/min").and("2/10s");
    let (service, _) = behind(HeaderFields::None, [payment]);
    for _ in 0..2 {
        send(&service, from("ada")).await;
    }
    assert_eq!(
        problem(send(&service, from("ada")).await).await,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "too many requests: try again in 10 s",
            "retry_after": 10,
            "limit": 2,
            "remaining": 0,
            "reset": 10,
            "violated-policies": ["payment.10s"],
        })
    );
}
