//! Policies that are off: no limit asks about them, and nobody sees anything of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tower::key::{Extraction, HeaderKey, OnMissingKey, RequestView, extract_fn};
use sluicegate_tower::limits::{Choose, Group, Limits, Tiers, WouldBe};
use sluicegate_tower::{Limit, Meter};
use tower::Layer;

use crate::support::{
    Body, Handler, all_fields, anonymous, answer, by_header, described, fields, from, number, on,
    paused_store, send, store,
};

fn put(limiter: &RateLimiter, mode: PolicyMode) {
    limiter.replace(limiter.policy().in_mode(mode), Inherit::Spent).unwrap();
}

#[tokio::test]
async fn a_policy_that_is_off_leaves_no_trace_and_spends_nothing() {
    let (store, _) = store();
    let api = on(&store, Policy::gcra("api", "1/min").mode(PolicyMode::Off));
    let layer = all_fields(by_header(api.clone())).build().unwrap();
    let handler = Handler::default();
    let service = layer.clone().decided().layer(handler.clone());
    for _ in 0..3 {
        let response = send(&service, from("ada")).await;
        assert_eq!((response.status(), fields(&response)), (StatusCode::OK, vec![]));
        assert!(handler.last_seen().is_none());
    }
    assert!(layer.shadow_counts().is_empty());
    put(&api, PolicyMode::Enforce);
    assert_eq!(answer(api.peek("ada")).remaining(), 1);
}

#[tokio::test]
async fn beside_one_that_is_off_the_others_are_enforced_and_shown() {
    let (store, _) = store();
    let off = on(&store, Policy::gcra("off", "1/min").mode(PolicyMode::Off));
    let api = by_header(on(&store, Policy::gcra("api", "2/min")));
    let layer = all_fields(by_header(off)).and(api).build().unwrap();
    let handler = Handler::default();
    let service = layer.clone().decided().layer(handler.clone());
    for left in [1, 0] {
        let response = send(&service, from("ada")).await;
        assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left));
        assert_eq!(described(&response, "ratelimit-policy").unwrap().len(), 1);
        assert_eq!(handler.last_seen().unwrap().policies.len(), 1);
    }
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_looked_up_for_a_policy_that_is_off_and_nothing_missing_refuses() {
    let store = paused_store();
    let lookups = Arc::new(AtomicUsize::new(0));
    let off = |name: &str| on(&store, Policy::gcra(name, "1/min").mode(PolicyMode::Off));
    let counted = Arc::clone(&lookups);
    let never_comes = extract_fn(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Extraction::pending(std::future::pending())
    });
    let free = off("free");
    let tiers = Tiers::builder(&free)
        .tier_with("free", free.clone())
        .tier_with("pro", off("pro"))
        .reject_unknown(StatusCode::PAYMENT_REQUIRED)
        .build()
        .unwrap();
    let counted = Arc::clone(&lookups);
    let plans = Limit::tiered_async(tiers.clone(), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Option<String>>()
    });
    let named = Limit::new(off("named"))
        .key(HeaderKey::new("x-name").unwrap())
        .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let layer = all_fields(Limit::new(off("by-name")).key(never_comes)).and(plans).and(named);
    let layer = layer.build().unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(send(&layer.layer(Handler::default()), anonymous()).await.status(), StatusCode::OK);
    assert_eq!((lookups.load(Ordering::Relaxed), start.elapsed()), (0, Duration::ZERO));

    // One tier that is enforced is reason enough to look.
    put(tiers.limiter("pro").unwrap(), PolicyMode::Enforce);
    let refused = send(&layer.layer(Handler::default()), anonymous()).await;
    assert_eq!((lookups.load(Ordering::Relaxed), refused.status()), (1, StatusCode::SERVICE_UNAVAILABLE));
}

fn plan(request: RequestView<'_>) -> Option<&str> {
    let is_ada = request.headers.get("x-key")? == "ada";
    Some(if is_ada { "pro" } else { "free" })
}

#[tokio::test]
async fn a_tier_may_be_off_while_others_are_enforced() {
    let (store, _) = store();
    let tiers = Tiers::builder(&on(&store, Policy::gcra("api", "9/min")))
        .tier("free", "1/min")
        .tier_with("pro", on(&store, Policy::gcra("pro", "1/min").mode(PolicyMode::Off)));
    let tiers = tiers.reject_unknown(StatusCode::PAYMENT_REQUIRED).build().unwrap();
    let by_tier = Limit::tiered(tiers, plan).key(HeaderKey::new("x-key").unwrap());
    let service = all_fields(by_tier).build().unwrap().layer(Handler::default());
    let mut statuses = Vec::new();
    for key in ["ada", "ada", "bob", "bob"] {
        statuses.push(send(&service, from(key)).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn a_meter_of_a_policy_that_is_off_charges_nothing() {
    let (store, _) = store();
    let api = on(&store, Policy::fixed_window("tokens", "100/min").mode(PolicyMode::Off));
    let layer = all_fields(by_header(api.clone())).meter().build().unwrap();
    let handler = tower::service_fn(|request: http::Request<()>| {
        let meter = request.extensions().get::<Meter>().cloned().unwrap();
        async move {
            assert!(meter.of("tokens").charge(35).await.unwrap().decided().is_none());
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("ok")))
        }
    });
    assert_eq!(send(&layer.layer(handler), from("ada")).await.status(), StatusCode::OK);
    put(&api, PolicyMode::Enforce);
    assert_eq!(answer(api.peek("ada")).remaining(), 100);
}

/// A request that began under a policy goes on as it began, though the policy is off when it is charged.
#[tokio::test]
async fn a_policy_that_is_switched_off_while_a_request_is_served_charges_no_more_and_gives_back_what_was_spent()
 {
    let (store, _) = store();
    let api = on(&store, Policy::fixed_window("tokens", "100/min"));
    let limit = by_header(api.clone()).cost(10).unwrap().refund_if(|head| head.status.is_success());
    let layer = all_fields(limit).meter().build().unwrap();
    let switched = api.clone();
    let handler = tower::service_fn(move |request: http::Request<()>| {
        let (meter, api) = (request.extensions().get::<Meter>().cloned().unwrap(), switched.clone());
        async move {
            put(&api, PolicyMode::Off);
            let _ = meter.of("tokens").charge(35).await.unwrap();
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("ok")))
        }
    });
    let response = send(&layer.layer(handler), from("ada")).await;
    assert_eq!(response.status(), StatusCode::OK);
    put(&api, PolicyMode::Enforce);
    assert_eq!(answer(api.peek("ada")).remaining(), 100);
}

#[tokio::test]
async fn the_explanation_says_that_a_policy_is_off() {
    let (store, _) = store();
    let off = by_header(on(&store, Policy::gcra("off", "1/min").mode(PolicyMode::Off)));
    let api = by_header(on(&store, Policy::gcra("api", "2/min")));
    // Which limit of a group applies is said by its conditions, so one that is off is still the first.
    let group = Group::new(Choose::First).and(off).and(api);
    let limits = Limits::builder(group).build().unwrap();
    let explained = limits.explain(&from("ada")).await;
    assert_eq!(explained.outcome, WouldBe::Unlimited);
    assert_eq!(explained.limits[0].asks.as_ref().unwrap_err(), "its policy is off");
}
