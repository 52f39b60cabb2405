//! The wait that a client is told by layers around layers: one suffices, where they know each other.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Key, Policy, Quota, RateLimiter};
use sluicegate_tests::around;
use sluicegate_tower::key::{Extraction, HeaderKey, OnMissingKey, extract_fn};
use sluicegate_tower::limits::{Limits, path_in};
use sluicegate_tower::rate_limit::RateLimitLayerBuilder;
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::steer::Steer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{
    Body, Handler, all_fields, answer, assert_no_duplicates, by_header, described, from, layer, limiter,
    number, on, send, store,
};

/// The statuses and waits of requests that each come as late as the one before was told.
async fn obedient<S>(service: &S, clock: &ManualClock) -> Vec<(u16, Option<u64>)>
where
    S: Service<Request<()>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let mut told = Vec::new();
    while told.last().is_none_or(|(status, _)| *status != 200) && told.len() < 9 {
        let response = send(service, from("ada")).await;
        let wait = number(&response, "retry-after");
        told.push((response.status().as_u16(), wait));
        clock.advance(Duration::from_secs(wait.unwrap_or(0)));
    }
    told
}

#[tokio::test]
async fn one_wait_suffices_for_all_limits_of_one_layer() {
    for (one, other) in [("2/10s", "2/min"), ("2/min", "2/10s")] {
        let (store, clock) = store();
        let limit = |name: &str, quota: &str| by_header(on(&store, Policy::fixed_window(name, quota)));
        let layer = all_fields(limit("one", one)).and(limit("other", other)).build().unwrap();
        let service = layer.layer(Handler::default());
        send(&service, from("ada")).await;
        send(&service, from("ada")).await;
        assert_eq!(obedient(&service, &clock).await, [(429, Some(60)), (200, None)]);
    }
}

/// A client that obeyed was refused by one layer after the other.
#[tokio::test]
async fn of_layers_that_know_each_other_one_wait_suffices_for_all() {
    let (store, clock) = store();
    let layer = |name: &str, quota| {
        all_fields(by_header(on(&store, Policy::fixed_window(name, quota)))).build().unwrap()
    };
    let [outer, middle, inner] =
        [("outer", "2/10s"), ("middle", "9/h"), ("inner", "2/min")].map(|(name, quota)| layer(name, quota));
    let stack = ServiceBuilder::new().layer(outer).map_request(|request| request).layer(middle);
    let service = stack.concurrency_limit(9).layer(inner).service(Handler::default());
    send(&service, from("ada")).await;
    send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await;
    assert_no_duplicates(&refused);
    let left =
        described(&refused, "ratelimit").unwrap().into_iter().map(|(name, numbers)| (name, numbers["r"]));
    assert_eq!(left.collect::<Vec<_>>(), [("outer".to_owned(), 0), ("inner".to_owned(), 0)]);
    assert_eq!(obedient(&service, &clock).await, [(429, Some(60)), (200, None)]);
    // To ask has spent nothing: three of nine passed, and none was refused.
    let inner = RateLimiter::new(&store, Policy::fixed_window("middle", "9/h").build().unwrap()).unwrap();
    assert_eq!(answer(inner.peek("ada")).remaining(), 6);
}

#[tokio::test]
async fn a_limit_further_in_that_does_not_apply_does_not_change_the_wait() {
    let (store, clock) = store();
    let limiter = on(&store, Policy::gcra("login", "1/h"));
    assert!(answer(limiter.check("ada")).is_allowed());
    let inner = all_fields(by_header(limiter).only_if(path_in(["/login"]).unwrap())).build().unwrap();
    let service = layer(&store, "outer", "1/min").layer(inner.layer(Handler::default()));
    send(&service, from("ada")).await;
    assert_eq!(obedient(&service, &clock).await, [(429, Some(60)), (200, None)]);
}

/// Such a layer is in the way of some of the requests only.
#[tokio::test]
async fn a_layer_behind_a_service_that_is_always_ready_is_not_known_and_names_a_wait_of_its_own() {
    let (store, clock) = store();
    let inner = layer(&store, "inner", "1/h").layer(Handler::default());
    let routed = service_fn(move |request| inner.clone().oneshot(request));
    let service = layer(&store, "outer", "1/min").layer(routed);
    send(&service, from("ada")).await;
    let told = obedient(&service, &clock).await;
    assert_eq!(told, [(429, Some(60)), (429, Some(3_540)), (200, None)]);
}

#[tokio::test]
async fn whatever_a_layer_further_in_tells_suffices_for_those_around_it() {
    let (store, clock) = crate::support::store();
    let layer = |name: &str, quota| {
        all_fields(by_header(on(&store, Policy::fixed_window(name, quota)))).build().unwrap()
    };
    let service = layer("outer", "2/min").layer(layer("inner", "1/10s").layer(Handler::default()));
    send(&service, from("ada")).await;
    assert_eq!(obedient(&service, &clock).await, [(429, Some(10)), (200, None)]);
}

/// The wait that "ada" is told by a layer of 1/min around this one, both of which have refused her before.
async fn told(inner: RateLimitLayer) -> Option<u64> {
    let (store, _) = store();
    let outer = on(&store, Policy::gcra("outer", "1/min"));
    assert!(answer(outer.check("ada")).is_allowed());
    let service = all_fields(by_header(outer)).build().unwrap().layer(inner.layer(Handler::default()));
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_no_duplicates(&refused);
    number(&refused, "retry-after")
}

/// One an hour, which "ada" and those without a key have spent.
fn spent() -> RateLimiter {
    let limiter = on(&store().0, Policy::gcra("inner", "1/h"));
    for key in [Key::from("ada"), Key::shared()] {
        assert!(answer(limiter.check(key)).is_allowed());
    }
    limiter
}

#[tokio::test]
async fn a_layer_further_in_is_asked_only_where_it_would_refuse_the_request_and_that_is_known_at_once() {
    let of = |limit: Limit| all_fields(limit);
    let built = |builder: RateLimitLayerBuilder| builder.build().unwrap();

    assert_eq!(told(built(of(by_header(spent())))).await, Some(3_600));
    let suspended = on(&store().0, Policy::gcra("inner", "9/h").suspend(2, "1min", "2h"));
    let _ = suspended.suspensions().suspend("ada", Duration::from_secs(7_200)).await.unwrap();
    assert_eq!(told(built(of(by_header(suspended)))).await, Some(7_200));

    let (memory, _) = store();
    let tried_out = on(&memory, Policy::gcra("inner", "1/h").mode(PolicyMode::Shadow));
    assert!(answer(tried_out.check("ada")).is_allowed());
    let late = Policy::gcra("far", "1/h").on(around::late(&memory)).unwrap();
    assert!(late.check("ada").await.unwrap().is_allowed());
    let both = spent();
    let user = Policy::gcra("user", "9/h").on(Arc::clone(both.store())).unwrap();
    let later = extract_fn(|_| Extraction::pending(async { Ok("ada".into()) }));
    let missing = HeaderKey::new("x-user").unwrap().verified_before();
    for (why, inner) in [
        ("a condition does not hold", of(by_header(spent()).only_if(path_in(["/login"]).unwrap()))),
        ("the request is exempt", of(by_header(spent())).exempt(|_| true)),
        ("that it is exempt is not known yet", of(by_header(spent())).exempt_async(|_| async { false })),
        ("no wait helps: it is denied", of(by_header(spent())).deny(|_| true)),
        ("no wait helps: it costs too much", of(by_header(spent()).cost_fn(|_| 5))),
        ("the policy is tried out", of(by_header(tried_out))),
        ("the store is far away", of(by_header(late))),
        ("the key is not known yet", of(Limit::new(spent()).key(later))),
        (
            "a layer in between may bring the key",
            of(Limit::new(spent()).key(missing.clone()).on_missing_key(OnMissingKey::Share)),
        ),
        (
            "a layer in between may bring the key of one limit",
            of(by_header(both)).and(Limit::new(user).key(missing)),
        ),
        ("the quota is not known yet", of(by_header(spent()).quota_by_async(|_| async { None::<Quota> }))),
    ] {
        assert_eq!(told(built(inner)).await, Some(60), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_further_in_is_waited_for_as_long_as_it_does_not_let_the_client_wait() {
    let start = Instant::now();
    let inner = limiter(Policy::gcra("inner", "1/min burst 1").wait_up_to(Duration::from_secs(20)));
    let outer = limiter(Policy::gcra("outer", "1/10s burst 1"));
    let service = all_fields(by_header(inner)).build().unwrap().layer(Handler::default());
    let service = all_fields(by_header(outer)).build().unwrap().layer(service);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let refused = send(&service, from("ada")).await;
    assert_eq!(number(&refused, "retry-after"), Some(40));
    tokio::time::advance(Duration::from_secs(40)).await;
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(start.elapsed(), Duration::from_secs(60));
}

/// A router of tower asks all of its services whether they are ready, and calls one.
#[tokio::test]
async fn a_layer_that_is_one_of_several_to_choose_from_is_not_known() {
    let (store, _) = store();
    let (login, search) =
        (on(&store, Policy::gcra("login", "1/h")), on(&store, Policy::gcra("search", "9/h")));
    assert!(answer(login.check("ada")).is_allowed());
    let routes =
        [login, search].map(|of| all_fields(by_header(of)).build().unwrap().layer(Handler::default()));
    let choose = |request: &Request<()>, _: &[_]| usize::from(request.uri().path() != "/login");
    let steer = Steer::new(routes, choose);
    let service = layer(&store, "between", "9/min").layer(steer);
    let service = layer(&store, "outer", "1/min").layer(service);
    send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await;
    assert_eq!(number(&refused, "retry-after"), Some(60));
    let named = described(&refused, "ratelimit").unwrap();
    assert_eq!(named.len(), 1, "the one between would let it pass: {named:?}");
}

#[tokio::test]
async fn a_layer_is_known_once_the_service_is_ready_and_by_its_limits_of_the_moment() {
    let (store, _) = store();
    let inner = layer(&store, "inner", "1/h");
    let handle = inner.limits_handle();
    let places = Arc::new(Semaphore::new(1));
    let stack = ServiceBuilder::new()
        .layer(layer(&store, "outer", "1/min"))
        .layer(GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(&places)))
        .layer(inner);
    let service = stack.service(Handler::default());
    // Without a place it does not ask those further in.
    let place = places.acquire().await.unwrap();
    assert!(ServiceExt::<Request<()>>::ready(&mut service.clone()).now_or_never().is_none());
    drop(place);
    send(&service, from("ada")).await;
    assert_eq!(number(&send(&service, from("ada")).await, "retry-after"), Some(3_600));
    let other = by_header(on(&store, Policy::gcra("other", "9/h")));
    handle.swap(Limits::builder(other).build().unwrap());
    assert_eq!(number(&send(&service, from("ada")).await, "retry-after"), Some(60));
}
