//! Which limits a meter is about.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_tower::limits::Tiers;
use sluicegate_tower::rate_limit::RateLimit;
use sluicegate_tower::{Limit, Meter, RateLimitLayer};
use tower::{Layer, service_fn};

use crate::rate_limit::meter::{left, metered};
use crate::support::{Body, answer, by_header, from, number, on, send, store};

#[tokio::test]
async fn a_limit_is_found_by_its_name_or_that_of_its_policy() {
    let (store, _) = store();
    let [requests, plan] = ["requests", "plan"].map(|name| on(&store, Policy::fixed_window(name, "100/min")));
    let layer = RateLimitLayer::builder(by_header(requests.clone()))
        .and(by_header(plan.clone()).named("tokens"))
        .meter()
        .build()
        .unwrap();
    let service = layer.layer(metered(|meter| async move {
        assert!(meter.of("none").is_empty() && !meter.is_empty());
        assert!(meter.of("none").charge(1).await.unwrap().decided().is_none());
        let _ = meter.of("tokens").charge(7).await.unwrap();
        let _ = meter.of("plan").charge(2).await.unwrap();
        let _ = meter.of("requests").refund(1).await.unwrap();
        assert_eq!((meter.of("plan").spent(), meter.of("requests").spent()), (10, 0));
    }));
    send(&service, from("ada")).await;
    assert_eq!([left(&requests), left(&plan)], [100, 90]);
}

#[tokio::test]
async fn with_tiers_a_meter_charges_the_tier_of_its_request() {
    let (store, _) = store();
    let tiers = Tiers::builder(&on(&store, Policy::fixed_window("api", "100/min")))
        .tier("free", "100/min")
        .tier("pro", "1000/min")
        .unlimited("enterprise")
        .default_tier("free")
        .build()
        .unwrap();
    let limit = Limit::tiered(tiers.clone(), |request| match request.headers["x-key"].to_str() {
        Ok("ada") => Some("pro"),
        Ok("eve") => Some("enterprise"),
        _ => None,
    });
    let limit = limit.key(sluicegate_tower::key::HeaderKey::new("x-key").unwrap());
    let layer = RateLimitLayer::builder(limit.named("tokens")).meter().build().unwrap();
    let service = layer.layer(metered(|meter| async move {
        let _ = meter.of("tokens").settle(40).await.unwrap();
    }));
    for key in ["ada", "bob", "eve"] {
        assert_eq!(send(&service, from(key)).await.status(), StatusCode::OK);
    }
    let left = [("pro", "ada"), ("free", "bob")]
        .map(|(tier, key)| answer(tiers.limiter(tier).unwrap().peek(key)).remaining());
    assert_eq!(left, [960, 60]);
}

#[tokio::test]
async fn the_meters_of_two_layers_are_one() {
    let (store, _) = store();
    let [outer, inner] = ["outer", "inner"].map(|name| on(&store, Policy::fixed_window(name, "100/min")));
    let layer =
        |limiter: &RateLimiter| RateLimitLayer::builder(by_header(limiter.clone())).meter().build().unwrap();
    let handler = metered(|meter| async move {
        let _ = meter.of("outer").charge(9).await.unwrap();
        let _ = meter.of("inner").charge(4).await.unwrap();
        let _ = meter.charge(5).await.unwrap();
    });
    send(&layer(&outer).layer(layer(&inner).layer(handler)), from("ada")).await;
    assert_eq!([left(&outer), left(&inner)], [85, 90]);
}

/// One call once named the limiters of both stores, and each change of such a meter failed.
#[tokio::test]
async fn the_meters_of_two_layers_on_two_stores_change_the_units_of_both() {
    let [(outside, _), (inside, _)] = [store(), store()];
    let [outer, inner] = [("outer", &outside), ("inner", &inside)]
        .map(|(name, store)| on(store, Policy::fixed_window(name, "100/min")));
    let layer = |limiter: &RateLimiter| {
        let limit = by_header(limiter.clone()).cost(10).unwrap();
        RateLimitLayer::builder(limit).meter().build().unwrap()
    };
    let handler = metered(|meter| async move {
        let standing = meter.charge(20).await.unwrap();
        let names = standing.decided().unwrap().policies.iter().map(|policy| policy.name().to_owned());
        assert_eq!(
            (standing.remaining(), names.collect::<Vec<_>>()),
            (Some(70), vec!["inner".into(), "outer".into()])
        );
        let _ = meter.of("inner").refund(5).await.unwrap();
        assert_eq!(meter.refund(7).await.unwrap().remaining(), Some(77));
        let _ = meter.settle(4).await.unwrap();
    });
    let response = send(&layer(&outer).layer(layer(&inner).layer(handler)), from("ada")).await;
    assert_eq!([left(&outer), left(&inner)], [96, 96]);
    assert_eq!(number(&response, "x-ratelimit-remaining"), Some(96));
}

#[tokio::test]
async fn requests_without_a_limit_have_a_meter_that_does_nothing() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("api", "1/min"))).only_if(|_| false);
    let layer = RateLimitLayer::builder(limit).meter().build().unwrap();
    let service = layer.layer(metered(|meter| async move {
        assert!(meter.is_empty() && meter.spent() == 0);
        assert!(meter.settle(10).await.unwrap().decided().is_none());
    }));
    send(&service, from("ada")).await;
}

#[tokio::test]
async fn without_being_asked_for_there_is_no_meter() {
    let (store, _) = store();
    let handler = service_fn(|request: Request<()>| {
        assert!(request.extensions().get::<Meter>().is_none());
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::from("ok"))))
    });
    let service: RateLimit<_> =
        RateLimitLayer::new(by_header(on(&store, Policy::gcra("api", "1/min")))).layer(handler);
    send(&service, from("ada")).await;
}

#[tokio::test]
async fn an_inner_layer_that_counts_nothing_leaves_the_meter_of_the_outer_one_alone() {
    let (store, _) = store();
    let [outer, inner] = ["outer", "inner"].map(|name| on(&store, Policy::fixed_window(name, "100/min")));
    let inner = RateLimitLayer::builder(by_header(inner)).exempt(|_| true).meter().build().unwrap();
    let outside = RateLimitLayer::builder(by_header(outer.clone())).meter().build().unwrap();
    let handler = metered(|meter| async move { drop(meter.charge(9).await.unwrap()) });
    send(&outside.layer(inner.layer(handler)), from("ada")).await;
    assert_eq!(left(&outer), 90);
}
