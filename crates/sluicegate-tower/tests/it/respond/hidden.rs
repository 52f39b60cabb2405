//! Policies that are enforced and that clients do not see.

use http::StatusCode;
use serde_json::json;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Key, Policy};
use sluicegate_tower::Limit;
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::respond::Refusal;
use tower::Layer;

use crate::support::{
    Body, Handler, all_fields, answer, by_header, fields, from, layer, on, problem, send, store,
};

/// A limit per key that shows itself, and one for everybody that does not.
fn behind(shown: &str, hidden: PolicyBuilder) -> (RateLimit<Handler>, Handler) {
    let (store, _) = store();
    let everybody = Limit::new(on(&store, hidden.hidden())).key(Key::from("all"));
    let handler = Handler::default();
    let layer = all_fields(everybody).and(by_header(on(&store, Policy::gcra("api", shown))));
    (layer.build().unwrap().decided().layer(handler.clone()), handler)
}

#[tokio::test]
async fn a_hidden_policy_is_in_no_field_and_no_body_and_refuses_all_the_same() {
    let (service, handler) = behind("10/min", Policy::fixed_window("everybody", "2/min").and("100/h"));
    let allowed = send(&service, from("ada")).await;
    let shown = |left: u64, reset: u64| {
        vec![
            r#"ratelimit-policy: "api";q=10;w=60"#.to_owned(),
            format!(r#"ratelimit: "api";r={left};t=6"#),
            "x-ratelimit-limit: 10".to_owned(),
            format!("x-ratelimit-remaining: {left}"),
            format!("x-ratelimit-reset: {reset}"),
        ]
    };
    assert_eq!(fields(&allowed), shown(9, 6));
    send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let mut expected = shown(8, 12);
    expected.extend(["cache-control: no-store".to_owned(), "retry-after: 60".to_owned()]);
    expected.sort();
    assert_eq!(fields(&refused), expected);
    assert_eq!(
        problem(refused).await,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "too many requests: try again in 60 s",
            "retry_after": 60,
            "limit": 10,
            "remaining": 8,
            "reset": 12,
            "violated-policies": [],
        })
    );
    // Handlers are not clients.
    assert_eq!(handler.last_seen().unwrap().quotas().len(), 3);
}

#[tokio::test]
async fn when_both_refuse_the_one_that_is_shown_speaks() {
    let (service, _) = behind("1/min", Policy::fixed_window("everybody", "1/h"));
    send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await;
    assert!(fields(&refused).contains(&"retry-after: 3600".to_owned()));
    let problem = problem(refused).await;
    assert_eq!((&problem["violated-policies"], &problem["remaining"]), (&json!(["api"]), &json!(0)));
}

#[tokio::test]
async fn if_all_policies_are_hidden_there_are_no_rate_limit_fields_at_all() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "1/min").hidden());
    let service = all_fields(by_header(limiter.clone())).build().unwrap().layer(Handler::default());
    assert_eq!(fields(&send(&service, from("ada")).await), [""; 0]);
    let refused = send(&service, from("ada")).await;
    assert_eq!(fields(&refused), ["cache-control: no-store", "retry-after: 60"]);
    let problem = problem(refused).await;
    assert_eq!(problem["violated-policies"], json!([]));
    assert!(problem.get("limit").is_none() && problem.get("remaining").is_none(), "{problem}");
    assert_eq!(answer(limiter.peek("ada")).remaining(), 0);
}

#[tokio::test]
async fn what_an_inner_layer_hides_an_outer_one_hides_too() {
    let (store, _) = store();
    let hidden = by_header(on(&store, Policy::gcra("hidden", "3/min").hidden()));
    let inner = all_fields(hidden).build().unwrap().layer(Handler::default());
    let service = layer(&store, "outer", "10/min").layer(inner);
    assert_eq!(
        fields(&send(&service, from("ada")).await),
        [
            r#"ratelimit-policy: "outer";q=10;w=60"#,
            r#"ratelimit: "outer";r=9;t=6"#,
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 9",
            "x-ratelimit-reset: 6",
        ]
    );
}

#[tokio::test]
async fn responders_are_told_what_may_be_shown() {
    let (store, _) = store();
    let respond = |refusal: &Refusal<'_>| {
        assert!(refusal.standing().is_none() && refusal.violated().next().is_none());
        assert_eq!(refusal.decided().unwrap().capacity(), 1);
        http::Response::new(Body::from("no"))
    };
    let limit = by_header(on(&store, Policy::gcra("api", "1/min").hidden()));
    let service = all_fields(limit).respond(respond).build().unwrap().layer(Handler::default());
    send(&service, from("ada")).await;
    send(&service, from("ada")).await;
}
