//! Policies that are chosen per request.

use std::sync::Arc;

use http::{Request, StatusCode};
use sluicegate_core::{Key, MemoryStore, Policy, Store};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::limits::Chosen;
use sluicegate_tower::{Limit, Meter};
use tower::{Layer, service_fn};

use crate::support::{
    Body, Handler, all_fields, by_header, described, from, number, on, send, service, store,
};

/// A request on a plan that its header names.
fn on_plan(plan: &str) -> Request<()> {
    Request::get("/").header("x-plan", plan).body(()).unwrap()
}

/// The header says the policy, as `name quota`.
fn policy(request: RequestView<'_>) -> Chosen {
    let plan = request.headers.get("x-plan").and_then(|plan| plan.to_str().ok()).unwrap_or("none");
    match plan.split_once(' ') {
        Some((name, quota)) => Policy::gcra(name, quota).into(),
        None if plan == "closed" => Chosen::Refuse(StatusCode::PAYMENT_REQUIRED),
        None => Chosen::Unlimited,
    }
}

fn by_plan(store: &MemoryStore) -> Limit {
    Limit::by(store, policy).key(Key::from("ada"))
}

#[tokio::test]
async fn each_request_is_asked_of_the_policy_that_was_chosen_for_it() {
    let (store, _) = store();
    let (service, handler) = service(by_plan(&store));
    for (plan, name, left) in [("free 2/min", "free", 1), ("pro 9/min", "pro", 8), ("free 2/min", "free", 0)]
    {
        let response = send(&service, on_plan(plan)).await;
        assert_eq!(described(&response, "ratelimit").unwrap()[0].0, name);
        assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left));
        assert_eq!(handler.last_seen().unwrap().policy().map(Policy::name), Some(name));
    }
    assert_eq!(send(&service, on_plan("free 2/min")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(send(&service, on_plan("pro 9/min")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, on_plan("closed")).await.status(), StatusCode::PAYMENT_REQUIRED);
    assert!(described(&send(&service, on_plan("none")).await, "ratelimit").is_none());
}

#[tokio::test]
async fn a_policy_that_is_looked_up_is_waited_for() {
    let (store, _) = store();
    let limit = Limit::by_async(&store, |request| {
        let chosen = policy(request);
        async move {
            tokio::task::yield_now().await;
            chosen
        }
    });
    let (service, _) = service(limit.key(Key::from("ada")));
    assert_eq!(send(&service, on_plan("free 1/min")).await.status(), StatusCode::OK);
    assert_eq!(send(&service, on_plan("free 1/min")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn the_policy_that_was_not_chosen_for_longest_is_closed_for_a_new_one() {
    let (store, _) = store();
    let (service, _) = service(by_plan(&store).open_at_most(2));
    let shared: Arc<dyn Store> = (&store).into();
    let open = || {
        shared.limiters().all().iter().map(|limiter| limiter.policy().name().to_owned()).collect::<Vec<_>>()
    };
    for plan in ["a 5/min", "b 5/min", "a 5/min", "c 5/min"] {
        send(&service, on_plan(plan)).await;
    }
    assert_eq!(open(), ["a", "c"]);
    let again = send(&service, on_plan("a 5/min")).await;
    assert_eq!(number(&again, "x-ratelimit-remaining"), Some(2), "what stays open forgets nothing");
    for plan in 0..1_000 {
        send(&service, on_plan(&format!("p{plan} 5/min"))).await;
    }
    // One more may be kept for the fields of the next response.
    assert!(open().len() <= 3, "{:?}", open());
}

#[tokio::test]
async fn other_quotas_under_a_name_replace_those_that_are_open_and_what_was_spent_counts() {
    let (store, _) = store();
    let (service, _) = service(by_plan(&store));
    for _ in 0..4 {
        send(&service, on_plan("plan 5/min")).await;
    }
    let grown = send(&service, on_plan("plan 10/min")).await;
    assert_eq!(number(&grown, "x-ratelimit-limit"), Some(10));
    assert_eq!(number(&grown, "x-ratelimit-remaining"), Some(5), "four were spent before, and one now");
}

#[tokio::test]
async fn a_choice_that_cannot_be_asked_is_a_500_and_spends_nothing() {
    let (store, _) = store();
    let (other, _) = crate::support::store();
    let elsewhere = on(&other, Policy::gcra("elsewhere", "5/min"));
    let api = on(&store, Policy::gcra("api", "5/min"));
    let limit = Limit::by(&store, {
        let api = api.clone();
        move |request| match request.uri.path() {
            "/other-store" => elsewhere.clone().into(),
            "/twice" => api.clone().into(),
            _ => policy(request),
        }
    });
    let layer = all_fields(by_header(api.clone())).and(limit.key(Key::from("ada"))).build().unwrap();
    let service = layer.layer(Handler::default());
    let to = |path: &str, plan: &str| {
        Request::get(path).header("x-key", "ada").header("x-plan", plan).body(()).unwrap()
    };
    for (path, plan) in [("/other-store", ""), ("/twice", ""), ("/", "no{name} 5/min"), ("/", "api 7/min")] {
        let status = send(&service, to(path, plan)).await.status();
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{path} {plan}");
    }
    assert_eq!(number(&send(&service, to("/", "x 9/min")).await, "x-ratelimit-remaining"), Some(4));
}

#[tokio::test]
async fn what_a_chosen_policy_has_spent_is_metered_and_given_back() {
    let (store, _) = store();
    let limit = by_plan(&store).named("plan").refund_if(|head| head.status == StatusCode::IM_A_TEAPOT);
    let layer = all_fields(limit).meter().build().unwrap();
    let service = layer.layer(service_fn(|request: Request<()>| async move {
        let meter = request.extensions().get::<Meter>().cloned().unwrap();
        meter.of("plan").settle(4).await.unwrap();
        let mut response = http::Response::new(Body::default());
        if request.uri().path() == "/failed" {
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
        }
        Ok::<_, std::convert::Infallible>(response)
    }));
    let served = send(&service, on_plan("pro 9/min")).await;
    assert_eq!(number(&served, "x-ratelimit-remaining"), Some(5));
    let failed = Request::get("/failed").header("x-plan", "pro 9/min").body(()).unwrap();
    assert_eq!(number(&send(&service, failed).await, "x-ratelimit-remaining"), Some(5));
}

#[tokio::test]
async fn a_chosen_policy_in_shadow_is_counted_by_its_name() {
    let (store, _) = store();
    let limit = Limit::by(&store, |_| Policy::gcra("tried", "1/min").shadow()).key(Key::from("ada"));
    let layer = all_fields(limit).build().unwrap();
    let service = layer.layer(Handler::default());
    for _ in 0..3 {
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    }
    let [count] = &layer.shadow_counts()[..] else { panic!("one policy is in shadow") };
    assert_eq!((&*count.policy, count.passed, count.refused), ("tried", 1, 2));
}
