//! A suspended key in HTTP and gRPC: status, fields, bodies; and the tiers of one limit.

use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt;
use serde_json::json;
use sluicegate_core::{Outcome, Policy};
use sluicegate_tower::limits::{Choose, Group, Tiers};
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::respond::{GrpcOr, GrpcStatus, ProblemJson, Refusal, RefusalReason};
use sluicegate_tower::{Limit, RateLimitLayer};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower::Layer;

use crate::support::{Handler, by_header, fields, from, number, on, problem, send, service, store};

fn login(quota: &str) -> sluicegate_core::policy::PolicyBuilder {
    Policy::fixed_window("login", quota).suspend(2, "1min", "30min")
}

#[tokio::test]
async fn a_suspended_key_gets_429_with_its_own_problem_type_and_the_exact_wait() {
    let (store, clock) = store();
    let (service, handler) = service(by_header(on(&store, login("1/h"))));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let refused = send(&service, from("ada")).await;
    assert_eq!(
        (refused.status(), number(&refused, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some(3_600))
    );
    let type_ = problem(refused).await["type"].clone();
    assert_eq!(type_, "https://iana.org/assignments/http-problem-types#quota-exceeded");
    for waited in [0, 100] {
        clock.advance(Duration::from_millis(waited));
        let suspended = send(&service, from("ada")).await;
        assert_eq!(suspended.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            fields(&suspended),
            [
                "cache-control: no-store",
                r#"ratelimit-policy: "login";q=1;w=3600"#,
                r#"ratelimit: "login";r=0;t=1800"#,
                "retry-after: 1800",
                "x-ratelimit-limit: 1",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 3600",
            ]
        );
        let decided: &Decided = suspended.extensions().get().unwrap();
        assert_eq!(decided.outcome(), Outcome::Suspended);
        assert_eq!(
            problem(suspended).await,
            json!({
                "type": "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
                "title": "Abnormal Usage Detected",
                "status": 429,
                "detail": "suspended after too many refused requests: try again in 1800 s",
                "retry_after": 1_800,
                "limit": 1,
                "remaining": 0,
                "reset": 3_600,
                "violated-policies": ["login"],
            })
        );
    }
    assert_eq!(handler.calls(), 1);
    clock.advance(Duration::from_millis(1_799_900));
    let refused = send(&service, from("ada")).await;
    assert_eq!(number(&refused, "retry-after"), Some(1_800), "the window is not over");
    clock.advance(Duration::from_secs(1_800));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, from("bob")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_browser_reads_one_line_and_a_closure_is_told_the_reason() {
    let (store, _) = store();
    let limiter = on(&store, login("1/h"));
    let _ = limiter.suspensions().suspend("ada", Duration::from_secs(60)).await.unwrap();
    let mut request = from("ada");
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/html"));
    let (service, _) = service(by_header(limiter.clone()));
    let line = send(&service, request).await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(line, "Suspended after too many refused requests: try again in 60 s\n");
    let layer = RateLimitLayer::builder(by_header(limiter)).respond(|refusal: &Refusal<'_>| {
        let RefusalReason::Suspended(decided) = refusal.reason() else { panic!("{refusal:?}") };
        assert_eq!(decided.retry_after(), Some(Duration::from_secs(60)));
        http::Response::new(crate::support::Body::from("out"))
    });
    let service = layer.build().unwrap().layer(Handler::default());
    let response = send(&service, from("ada")).await;
    assert_eq!(number(&response, "retry-after"), Some(60), "the layer adds the fields");
}

#[tokio::test]
async fn a_grpc_client_is_told_in_its_own_words() {
    let (store, clock) = store();
    let limiter = on(&store, login("1/h"));
    let _ = limiter.suspensions().suspend("ada", Duration::from_secs(60)).await.unwrap();
    clock.advance(Duration::from_millis(1));
    for plain in [false, true] {
        let mut request = from("ada");
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let limit = by_header(limiter.clone());
        let response = if plain {
            let layer = RateLimitLayer::builder(limit).responder(GrpcStatus::new()).build().unwrap();
            send(&layer.layer(Handler::default()), request).await
        } else {
            let layer =
                RateLimitLayer::builder(limit).responder(GrpcOr::new(ProblemJson::new())).build().unwrap();
            send(&layer.layer(Handler::default()), request).await
        };
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(number(&response, "grpc-retry-pushback-ms"), Some(59_999));
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "suspended after too many refused requests: try again in 60 s");
        let wait = status.get_details_retry_info().unwrap().retry_delay;
        assert_eq!(wait, Some(Duration::from_millis(59_999)));
        let violations = status.get_details_quota_failure().unwrap().violations;
        assert_eq!(violations[0].subject, "login");
    }
}

#[tokio::test]
async fn a_hidden_policy_suspends_without_a_name_or_number() {
    let (store, _) = store();
    let limiter = on(&store, login("1/h").hidden());
    let _ = limiter.suspensions().suspend("ada", Duration::from_secs(60)).await.unwrap();
    let (service, _) = service(by_header(limiter));
    let suspended = send(&service, from("ada")).await;
    assert_eq!(fields(&suspended), ["cache-control: no-store", "retry-after: 60"]);
    let problem = problem(suspended).await;
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#abnormal-usage-detected");
    assert_eq!(problem["violated-policies"], json!([]));
    assert!(problem.get("limit").is_none());
}

#[tokio::test]
async fn a_suspension_in_shadow_refuses_nobody() {
    let (store, _) = store();
    let (service, handler) = service(by_header(on(&store, login("1/h").shadow())));
    for _ in 0..10 {
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    }
    assert_eq!(handler.calls(), 10);
}

#[tokio::test]
async fn of_a_group_only_the_limit_that_refused_counts_and_the_whole_request_is_refused() {
    let (store, _) = store();
    let wide = on(&store, Policy::fixed_window("wide", "100/h").suspend(1, "1min", "1h"));
    let limit = Group::new(Choose::All).and(by_header(on(&store, login("1/h")))).and(by_header(wide.clone()));
    let layer = RateLimitLayer::builder(limit).build().unwrap();
    let service = layer.layer(Handler::default());
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    for expected in [3_600, 1_800, 1_800] {
        let refused = send(&service, from("ada")).await;
        assert_eq!(number(&refused, "retry-after"), Some(expected));
        let names = problem(refused).await["violated-policies"].clone();
        assert_eq!(names, json!(["login"]));
    }
    assert_eq!(wide.peek("ada").await.unwrap().remaining(), 99);
}

/// A request of a suspended key took a turn that another one of that key had left.
#[tokio::test(start_paused = true)]
async fn a_suspended_key_takes_no_turn_that_another_request_has_left() {
    let store = crate::support::paused_store();
    let policy =
        Policy::gcra("queue", "1/s burst 1").wait_up_to(Duration::from_secs(5)).suspend(1, "1min", "1min");
    let limiter = on(&store, policy);
    let (service, handler) = service(by_header(limiter.clone()));
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let first = tokio::spawn({
        let service = service.clone();
        async move { send(&service, from("ada")).await }
    });
    let second = tokio::spawn({
        let service = service.clone();
        async move { send(&service, from("ada")).await }
    });
    tokio::task::yield_now().await;
    first.abort();
    let _ = limiter.suspensions().suspend("ada", Duration::from_secs(60)).await.unwrap();
    let refused = send(&service, from("ada")).await;
    assert_eq!(
        (refused.status(), number(&refused, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some(60))
    );
    assert_eq!(second.await.unwrap().status(), StatusCode::OK, "a turn that was given stays given");
    assert_eq!(handler.calls(), 2);
}

#[test]
fn tiers_that_suspend_apart_are_refused_for_a_client_could_change_its_tier() {
    let tiers = |pro: sluicegate_core::policy::PolicyBuilder,
                 free: sluicegate_core::policy::PolicyBuilder| {
        let (store, _) = store();
        let [free, pro] = [free, pro].map(|policy| on(&store, policy));
        let builder = Tiers::builder(&free).tier_with("free", free.clone()).tier_with("pro", pro);
        builder.tier("more", "9/h").unlimited("max").default_tier("free").build()
    };
    let policy = |name: &str| Policy::fixed_window(name, "1/h").suspend(2, "1min", "30min");
    for (free, pro) in [
        (policy("free"), policy("pro")),
        (policy("free").suspend_as("plan"), policy("pro")),
        (policy("free").suspend_as("plan"), policy("pro").suspend_as("plans")),
    ] {
        let error = tiers(pro, free).unwrap_err().to_string();
        assert!(
            error.contains("\"free\"") && error.contains("\"pro\"") && error.contains("suspend_as"),
            "{error}"
        );
    }
    assert!(tiers(policy("free").suspend_as("plan"), policy("pro").suspend_as("plan")).is_ok());
    assert!(tiers(Policy::fixed_window("free", "1/h"), policy("pro")).is_ok(), "one of them suspends nobody");
}

#[tokio::test]
async fn a_client_that_changes_its_tier_takes_its_refusals_and_its_suspension_along() {
    let (store, _) = store();
    let policy = |name: &str| {
        let policy = Policy::fixed_window(name, "1/h").suspend(3, "1min", "30min").suspend_as("plan");
        on(&store, policy)
    };
    let tiers = Tiers::builder(&policy("free"))
        .tier("free", "1/h")
        .tier_with("pro", policy("pro"))
        .default_tier("free")
        .build();
    let limit = Limit::tiered(tiers.unwrap(), |request| request.headers.get("x-tier")?.to_str().ok());
    let limit = limit.key(sluicegate_tower::key::HeaderKey::new("x-key").unwrap());
    let (service, _) = service(limit);
    let on_tier = |tier: &'static str| {
        let mut request = from("ada");
        request.headers_mut().insert("x-tier", HeaderValue::from_static(tier));
        request
    };
    for tier in ["free", "pro"] {
        assert_eq!(send(&service, on_tier(tier)).await.status(), StatusCode::OK);
    }
    for (tier, wait) in [("free", 3_600), ("pro", 3_600), ("free", 1_800), ("pro", 1_800)] {
        assert_eq!(number(&send(&service, on_tier(tier)).await, "retry-after"), Some(wait), "{tier}");
    }
}
