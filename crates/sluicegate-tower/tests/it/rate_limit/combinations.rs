//! All that a layer can do, in all combinations: the inner service is called only when it is ready, and what is not a
//! limit's business passes untouched.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use sluicegate_core::{Policy, Store};
use sluicegate_tests::around;
use sluicegate_tower::limits::Tiers;
use sluicegate_tower::respond::HeaderFields;
use sluicegate_tower::{Limit, Meter, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::guard::gates::passed;
use crate::guard::readiness::passes_in_every_order;
use crate::rate_limit::readiness::Slow;
use crate::support::strict::Strict;
use crate::support::{Body, by_header, from, paused_store};

/// What a layer may have besides one limit; a bit each.
const FEATURES: u32 = 9;

/// A layer with the features whose bits are set; its policies have names of their own in each.
fn layer(store: &Arc<dyn Store>, which: &str, features: u32) -> RateLimitLayer {
    let has = |bit: u32| features >> bit & 1 == 1;
    let limiter = |policy: sluicegate_core::policy::PolicyBuilder| policy.on(Arc::clone(store)).unwrap();
    let name = |what: &str| format!("{what}-{which}-{features}");
    let mut builder = RateLimitLayer::builder(by_header(limiter(Policy::gcra(name("plain"), "1000/s"))));
    if has(0) {
        builder = builder.and(Limit::new(limiter(Policy::gcra(name("slow"), "1000/s"))).key(Slow));
    }
    if has(1) || has(2) {
        let tiers = Tiers::builder(&limiter(Policy::gcra(name("free"), "100/s")))
            .tier("free", "1000/s")
            .unlimited("none")
            .default_tier("free")
            .build()
            .unwrap();
        let limit = if has(1) {
            Limit::tiered_async(tiers, |_| async {
                tokio::task::yield_now().await;
                None::<String>
            })
        } else {
            Limit::tiered(tiers, |request| (request.headers["x-key"] == "ada").then_some("none"))
        };
        builder = builder.and(limit.key(Slow));
    }
    if has(3) {
        let waits = Policy::gcra(name("waits"), "20/s burst 1").wait_up_to(Duration::from_secs(600));
        builder = builder.and(by_header(limiter(waits)));
    }
    if has(4) {
        builder = builder.and(by_header(limiter(Policy::gcra(name("shadow"), "1/min").shadow())));
    }
    if has(5) {
        let limit = by_header(limiter(Policy::gcra(name("refunds"), "1000/s").hidden()));
        builder = builder.and(limit.refund_if(|head| head.status.is_success()).cost_fn(|_| 2));
    }
    if has(6) {
        builder = builder.meter();
    }
    if has(7) {
        builder = builder.exempt(|_| false).deny(|_| false).expose_headers();
    }
    if has(8) {
        builder = builder.headers(HeaderFields::None).without_extensions();
    }
    builder.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn in_no_combination_is_a_service_called_that_is_not_ready() {
    let near: Arc<dyn Store> = (&paused_store()).into();
    let far = around::late(&paused_store());
    for features in 0..1_u32 << FEATURES {
        let store = if features.count_ones() % 2 == 0 { &near } else { &far };
        let service = layer(store, "one", features).layer(Strict::default());
        passes_in_every_order(passed(service), || from("ada")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_no_combination_of_two_layers_is_a_service_called_that_is_not_ready() {
    let store: Arc<dyn Store> = (&paused_store()).into();
    for outer in (0..FEATURES).map(|bit| 1 << bit) {
        for inner in (0..FEATURES).map(|bit| 1 << bit) {
            let around = layer(&store, &format!("around-{inner}"), outer);
            let behind = layer(&store, &format!("behind-{outer}"), inner);
            let service = around.layer(behind.layer(Strict::default()));
            passes_in_every_order(passed(service), || from("ada")).await;
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Mine(&'static str);

#[tokio::test(start_paused = true)]
async fn heads_bodies_and_extensions_pass_untouched() {
    let store: Arc<dyn Store> = (&paused_store()).into();
    let echo = service_fn(|mut request: Request<Body>| async move {
        assert_eq!(request.method(), "PATCH");
        assert_eq!(request.version(), http::Version::HTTP_2);
        assert_eq!(request.uri(), "http://example.org/a%2fb?c=d");
        let many: Vec<_> = request.headers().get_all("x-many").iter().cloned().collect();
        let mine = request.extensions_mut().remove::<Mine>().expect("an extension of the request");
        let mut response = Response::new(request.into_body());
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        *response.version_mut() = http::Version::HTTP_2;
        for value in many {
            response.headers_mut().append("x-many", value);
        }
        response.extensions_mut().insert(mine);
        Ok::<_, std::convert::Infallible>(response)
    });
    for features in 0..1_u32 << FEATURES {
        let mut service = layer(&store, "echo", features).layer(echo);
        let request = Request::patch("http://example.org/a%2fb?c=d")
            .version(http::Version::HTTP_2)
            .header("x-key", "bob")
            .header("x-many", "1")
            .header("x-many", "2")
            .extension(Mine("kept"))
            .body(Body::from("the body"));
        let response = service.ready().await.unwrap().call(request.unwrap()).await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::IM_A_TEAPOT, http::Version::HTTP_2));
        assert_eq!(response.headers().get_all("x-many").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(response.extensions().get::<Mine>(), Some(&Mine("kept")));
        assert!(response.extensions().get::<Meter>().is_none());
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "the body", "{features:b}");
    }
}
