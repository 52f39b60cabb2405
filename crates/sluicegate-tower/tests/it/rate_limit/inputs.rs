//! Inputs that are bad on purpose. What each stands for is in the name of its test.

use std::convert::Infallible;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use sluicegate_core::{Key, Policy};
use sluicegate_tower::key::{Extraction, MissingKey, OnMissingKey, RequestView};
use sluicegate_tower::limits::{Tiers, method_in};
use sluicegate_tower::{KeyExtractor, Limit};
use tower::{Layer, Service, service_fn};

use crate::support::{
    Body, all_fields, anonymous, answer, by_header, fields, from, layer, number, on, problem, send, service,
    store,
};

/// Panics for one key, and rejects another whatever the limit says.
struct Difficult;

impl KeyExtractor for Difficult {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match request.headers.get("x-key").map(|key| key.as_bytes()) {
            Some(b"panic") => panic!("a mistake in the extractor"),
            Some(b"forged") => MissingKey::new("the key is forged").rejecting(StatusCode::FORBIDDEN).into(),
            Some(key) => Extraction::found(Key::from(key)),
            None => Extraction::missing("there is no key"),
        }
    }
}

#[tokio::test]
async fn b38_an_extractor_that_panics_is_not_caught_and_breaks_nothing_for_others() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "2/min"));
    let (service, handler) = service(Limit::new(limiter.clone()).key(Difficult));
    let panics = catch_unwind(AssertUnwindSafe(|| drop(service.clone().call(from("panic")))));
    let message = *panics.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(message, "a mistake in the extractor", "it is the server's to turn it into a 500");
    assert_eq!(handler.calls(), 0);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(answer(limiter.peek("ada")).remaining(), 1);
}

#[tokio::test]
async fn b38_a_key_that_is_to_be_rejected_is_rejected_whatever_the_limit_says() {
    let (store, _) = store();
    for action in [OnMissingKey::Share, OnMissingKey::Skip, OnMissingKey::Reject(StatusCode::UNAUTHORIZED)] {
        let limiter = on(&store, Policy::gcra("api", "2/min"));
        let (service, handler) = service(Limit::new(limiter.clone()).key(Difficult).on_missing_key(action));
        let refused = send(&service, from("forged")).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(problem(refused).await["detail"], "the key is forged");
        assert_eq!((handler.calls(), answer(limiter.peek(Key::shared())).remaining()), (0, 2));
    }
}

#[test]
fn b40_more_than_sixteen_quotas_for_one_request_are_refused_and_of_tiers_the_largest_counts() {
    let (store, _) = store();
    let windows = |name: &str, quotas: u64| {
        let first = Policy::fixed_window(name, "1/s").named("q0");
        (1..quotas).fold(first, |policy, index| {
            policy
                .and(sluicegate_core::Quota::new(1 + index, std::time::Duration::from_secs(1 + index)))
                .named(format!("q{index}"))
        })
    };
    let [small, large] = [windows("small", 2), windows("large", 10)].map(|policy| on(&store, policy));
    let tiers = Tiers::builder(&small).tier_with("small", small.clone()).tier_with("large", large);
    let tiers = tiers.unlimited("none").default_tier("small").build().unwrap();
    let builder = || all_fields(Limit::tiered(tiers.clone(), |_| None)).and(on(&store, windows("other", 6)));
    assert!(builder().build().is_ok(), "sixteen at most, though the policies have eighteen");
    let error = builder().and(on(&store, Policy::gcra("one-more", "1/s"))).build().unwrap_err();
    assert!(error.to_string().contains("17 quotas, and at most 16"), "{error}");
}

#[tokio::test]
async fn b52_every_method_is_limited_unless_the_operator_says_otherwise() {
    let (store, _) = store();
    let request =
        |method: &str| Request::builder().method(method).uri("/").header("x-key", "ada").body(()).unwrap();
    let methods = ["GET", "HEAD", "OPTIONS", "CONNECT", "PROPFIND", "get", "QUERY"];
    let (all, _) = service(by_header(on(&store, Policy::gcra("all", "7/min"))));
    for (method, left) in methods.iter().zip((0..7).rev()) {
        assert_eq!(number(&send(&all, request(method)).await, "x-ratelimit-remaining"), Some(left));
    }
    let reads =
        by_header(on(&store, Policy::gcra("reads", "1/min"))).only_if(method_in([Method::GET, Method::HEAD]));
    let (reads, _) = service(reads);
    assert_eq!(send(&reads, request("HEAD")).await.status(), StatusCode::OK);
    assert_eq!(send(&reads, request("GET")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    for method in ["OPTIONS", "CONNECT", "PROPFIND", "get"] {
        assert_eq!(send(&reads, request(method)).await.status(), StatusCode::OK, "{method}");
    }
}

#[tokio::test]
async fn b58_responses_without_a_body_carry_the_fields_and_get_no_body() {
    let (store, _) = store();
    for status in [304, 204, 101, 200] {
        let inner = service_fn(move |_: Request<()>| {
            let response = Response::builder().status(status).header("etag", "\"1\"").body(Body::default());
            ready(Ok::<_, Infallible>(response.unwrap()))
        });
        let name = format!("s{status}");
        let service = layer(&store, &name, "5/min").layer(inner);
        let response = send(&service, from("ada")).await;
        assert_eq!((response.status().as_u16(), fields(&response).len()), (status, 5));
        assert_eq!(response.headers()["etag"], "\"1\"");
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn what_clients_write_never_reaches_the_fields_or_bodies() {
    let (store, _) = store();
    let (service, _) = service(Limit::new(on(&store, Policy::gcra("api", "1/min"))).key(Key::from("all")));
    send(&service, anonymous()).await;
    for accept in ["\"<script>", "text/html;q=\"1", "*/*;;;q=;,", "é", &"a,".repeat(4_000)] {
        let value = http::HeaderValue::from_bytes(accept.as_bytes()).unwrap();
        let mut request = anonymous();
        request.headers_mut().insert("accept", value);
        let refused = send(&service, request).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() < 512 && !body.windows(3).any(|part| part == b"scr"), "{body:?}");
    }
}
