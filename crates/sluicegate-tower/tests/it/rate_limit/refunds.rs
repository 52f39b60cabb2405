//! Units that come back by what the response is.

use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::{Key, Policy, Quota, RateLimiter};
use sluicegate_tests::around;
use sluicegate_tower::Limit;
use sluicegate_tower::key::{HeaderKey, PeerAddr};
use sluicegate_tower::rate_limit::Decided;
use tower::{Layer, Service, service_fn};

use crate::support::{
    Body, all_fields, answer, by_header, described, fields, layer, number, on, reading, send, store,
};

/// Answers with the status that the path names.
fn echo() -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible> + Clone {
    service_fn(|request: Request<()>| {
        let status = request.uri().path()[1..].parse().unwrap();
        ready(Ok(Response::builder().status(StatusCode::from_u16(status).unwrap()).body("x".into()).unwrap()))
    })
}

fn asking_for(status: u16) -> Request<()> {
    Request::get(format!("/{status}")).header("x-key", "ada").body(()).unwrap()
}

/// Only failures count.
fn failures(limiter: RateLimiter) -> Limit {
    by_header(limiter).refund_if(|head| head.status.is_success())
}

#[tokio::test]
async fn a_login_that_went_well_is_not_counted_under_any_algorithm() {
    for algorithm in ["gcra", "fixed-window", "sliding-counter", "sliding-log", "token-bucket"] {
        let (store, _) = store();
        let login = on(&store, Policy::builder("login", algorithm.parse().unwrap(), "2/min"));
        let service = all_fields(failures(login.clone())).build().unwrap().layer(echo());
        for _ in 0..5 {
            let response = send(&service, asking_for(200)).await;
            assert_eq!(number(&response, "x-ratelimit-remaining"), Some(2), "{algorithm}");
        }
        for left in [1, 0] {
            let response = send(&service, asking_for(401)).await;
            assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left), "{algorithm}");
        }
        assert_eq!(send(&service, asking_for(200)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn what_is_given_back_shows_at_once_in_fields_and_extensions() {
    let (store, _) = store();
    let limit = failures(on(&store, Policy::gcra("api", "10/min"))).cost(4).unwrap();
    let service = all_fields(limit).build().unwrap().layer(echo());
    let response = send(&service, reading(asking_for(200))).await;
    assert_eq!(
        fields(&response),
        [
            r#"ratelimit-policy: "api";q=10;w=60"#,
            r#"ratelimit: "api";r=10"#,
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 10",
            "x-ratelimit-reset: 0",
        ]
    );
    assert_eq!(response.extensions().get::<Decided>().unwrap().remaining(), 10);
}

#[tokio::test]
async fn of_several_limits_each_gives_back_by_its_own_rule() {
    let (store, _) = store();
    let [api, errors, login] =
        ["api", "errors", "login"].map(|name| on(&store, Policy::sliding_log(name, "10/min")));
    let layer = all_fields(by_header(api.clone()).cost(3).unwrap())
        .and(by_header(errors.clone()).refund_if(|head| !head.status.is_server_error()))
        .and(failures(login.clone()))
        .build()
        .unwrap();
    let service = layer.layer(echo());
    let response = send(&service, asking_for(200)).await;
    let left = described(&response, "ratelimit").unwrap().into_iter().map(|(_, numbers)| numbers["r"]);
    assert_eq!(left.collect::<Vec<_>>(), [7, 10, 10]);
    for status in [500, 404] {
        send(&service, asking_for(status)).await;
    }
    let left = [api, errors, login].map(|limiter| answer(limiter.peek("ada")).remaining());
    assert_eq!(left, [1, 9, 8]);
}

#[tokio::test]
async fn a_store_that_answers_late_gives_back_without_making_the_response_wait() {
    let (memory, _) = store();
    let login = Policy::gcra("login", "2/min").on(around::late(&memory)).unwrap();
    let service = all_fields(failures(login.clone())).build().unwrap().layer(echo());
    let response = send(&service, asking_for(200)).await;
    assert_eq!(number(&response, "x-ratelimit-remaining"), Some(1), "what is known when it is sent");
    assert_eq!(login.peek("ada").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn what_an_inner_layer_refuses_is_given_back_once() {
    let (store, _) = store();
    let outer = on(&store, Policy::sliding_log("outer", "10/min"));
    let inner = layer(&store, "inner", "1/min").layer(echo());
    let everything = by_header(outer.clone()).refund_if(|_| true);
    let service = all_fields(everything).build().unwrap().layer(inner);
    let _ = outer.charge("ada", 5).await.unwrap();
    for _ in 0..3 {
        send(&service, asking_for(200)).await;
        assert_eq!(answer(outer.peek("ada")).remaining(), 5);
    }
}

/// One look decides such requests, and what it has kept gives the units back.
#[tokio::test]
async fn what_an_inner_layer_refuses_is_given_back_once_whatever_the_limit_has_chosen() {
    type Choose = fn(Limit) -> Limit;
    let plain = || Policy::gcra("outer", "10/min");
    let by_key: Choose = |limit| limit.key(HeaderKey::new("x-key").unwrap());
    let (ada, peer) = (Key::from("ada"), Key::from(IpAddr::from([192, 0, 2, 7])));
    let chosen: Choose = |limit| limit.quota_by(|_| Some("10/h".parse::<Quota>())).cost_fn(|_| 2);
    for (policy, key, quotas, choose) in [
        (plain(), &ada, None, by_key),
        (plain(), &peer, None, (|limit| limit) as Choose),
        (plain(), &peer, Some("10/h"), chosen),
        (plain().refunds(), &ada, None, by_key),
        (plain().wait_up_to(Duration::from_secs(60)), &ada, None, by_key),
    ] {
        let (store, _) = store();
        let outer = on(&store, policy);
        let everything = choose(Limit::new(outer.clone())).refund_if(|_| true);
        let outer = quotas.map_or_else(|| outer.clone(), |quotas| outer.with_quotas(quotas).unwrap());
        let inner = layer(&store, "inner", "1/min").layer(echo());
        let service = all_fields(everything).build().unwrap().layer(inner);
        let _ = outer.charge(key, 5).await.unwrap();
        for _ in 0..3 {
            let mut request = asking_for(200);
            request.extensions_mut().insert(PeerAddr(([192, 0, 2, 7], 80).into()));
            send(&service, request).await;
            assert_eq!(answer(outer.peek(key)).remaining(), 5);
        }
    }
}
