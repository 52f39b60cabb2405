//! Policies that are chosen per request.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use sluicegate_core::{Key, MemoryStore, Policy, Store};
use sluicegate_observed::Observed;
use sluicegate_tower::key::{HeaderKey, RequestView};
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

/// The names of the policies that are open on a store.
fn open_on(store: &MemoryStore) -> Vec<String> {
    let shared: Arc<dyn Store> = store.into();
    shared.limiters().all().iter().map(|limiter| limiter.policy().name().to_owned()).collect()
}

#[tokio::test]
async fn the_policy_that_was_not_chosen_for_longest_is_closed_for_a_new_one_when_its_keys_owe_nothing() {
    let (store, clock) = store();
    let (service, _) = service(by_plan(&store).open_at_most(2));
    for plan in ["a 5/min", "b 5/min", "a 5/min", "c 5/min"] {
        send(&service, on_plan(plan)).await;
    }
    assert_eq!(open_on(&store), ["a", "b", "c"], "keys owe under each");
    // Until the clock could be set back a little, and show a debt again.
    clock.advance(Duration::from_secs(90));
    send(&service, on_plan("a 5/min")).await;
    send(&service, on_plan("d 5/min")).await;
    assert_eq!(open_on(&store), ["a", "d"]);
    let again = send(&service, on_plan("a 5/min")).await;
    assert_eq!(number(&again, "x-ratelimit-remaining"), Some(3), "what stays open forgets nothing");
    for plan in 0..1_000 {
        send(&service, on_plan(&format!("p{plan} 5/min"))).await;
        clock.advance(Duration::from_secs(60));
    }
    // One more may be kept for the fields of the next response.
    assert!(open_on(&store).len() <= 4, "{:?}", open_on(&store));
}

#[tokio::test]
async fn no_customer_of_many_with_a_policy_of_their_own_passes_more_than_it_allows() {
    for (customers, limit) in [(101, 10), (300, 3)] {
        let (store, clock) = store();
        let choose = move |request: RequestView<'_>| {
            let name = request.headers.get("x-plan").and_then(|plan| plan.to_str().ok()).unwrap_or("none");
            Policy::sliding_log(name, format!("{limit}/h")).table_size(1)
        };
        let (service, _) = service(Limit::by(&store, choose).key(Key::from("all")));
        let mut passed = 0;
        for _ in 0..=limit {
            for customer in 0..customers {
                let status = send(&service, on_plan(&format!("customer-{customer}"))).await.status();
                passed += u32::from(status == StatusCode::OK);
            }
        }
        assert_eq!(passed, customers * limit);
        clock.advance(Duration::from_secs(3_700));
        for customer in 0..2 * customers {
            assert_eq!(send(&service, on_plan(&format!("later-{customer}"))).await.status(), StatusCode::OK);
        }
        assert!(open_on(&store).len() < 400 + customers as usize, "those that owe nothing are closed");
    }
}

#[tokio::test]
async fn where_keys_owe_under_ten_times_as_many_as_stay_open_another_one_is_refused() {
    let (store, clock) = store();
    let observed = Observed::named("memory", &store).unwrap();
    let (service, _) = service(Limit::by(&observed, policy).key(Key::from("ada")).open_at_most(2));
    for plan in 0..20 {
        assert_eq!(send(&service, on_plan(&format!("p{plan} 5/h"))).await.status(), StatusCode::OK);
    }
    let status = send(&service, on_plan("more 5/h")).await.status();
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(observed.snapshot().stores[0].policies_kept_open, 18);
    let again = send(&service, on_plan("p0 5/h")).await;
    assert_eq!(number(&again, "x-ratelimit-remaining"), Some(3), "who is here already goes on");
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(send(&service, on_plan("more 5/h")).await.status(), StatusCode::OK);
}

/// Names that clients invent would otherwise read the tables of the open policies with each request.
#[tokio::test]
async fn a_policy_that_had_to_stay_open_is_looked_at_again_after_a_minute() {
    let (store, clock) = store();
    let (service, _) = service(by_plan(&store).open_at_most(1));
    for plan in ["a 5/h", "b 5/h"] {
        send(&service, on_plan(plan)).await;
    }
    // Closing it would forget nothing from now on.
    Policy::gcra("a", "5/h").on(&store).unwrap().reset_all().unwrap();
    clock.advance(Duration::from_secs(59));
    send(&service, on_plan("c 5/h")).await;
    assert_eq!(open_on(&store), ["a", "b", "c"], "nobody has looked since");
    clock.advance(Duration::from_secs(1));
    send(&service, on_plan("d 5/h")).await;
    assert_eq!(open_on(&store), ["b", "c", "d"]);
}

#[tokio::test]
async fn a_policy_under_which_a_key_is_suspended_or_waits_stays_open() {
    let (store, clock) = store();
    let choose = |request: RequestView<'_>| {
        let plan = request.headers.get("x-plan").and_then(|plan| plan.to_str().ok()).unwrap_or("none");
        Policy::gcra(plan, "60/min burst 1").suspend(2, "1min", "1h")
    };
    let (service, _) = service(Limit::by(&store, choose).key(Key::from("ada")).open_at_most(1));
    for _ in 0..4 {
        send(&service, on_plan("bad")).await;
    }
    for plan in ["b", "c", "d"] {
        clock.advance(Duration::from_secs(600));
        send(&service, on_plan(plan)).await;
    }
    assert!(open_on(&store).contains(&"bad".to_owned()), "{:?}", open_on(&store));
    assert_eq!(send(&service, on_plan("bad")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_for_plans_of_different_quotas_is_exact_with_any_number_of_threads() {
    let (store, _) = store();
    let (service, _) = service(
        Limit::by(&store, |request: RequestView<'_>| {
            let plan = request.headers.get("x-plan").and_then(|plan| plan.to_str().ok()).unwrap_or("1");
            Policy::sliding_log("customers", format!("{plan}/h"))
        })
        .key(HeaderKey::new("x-key").unwrap()),
    );
    let ask = |customer: u32| {
        let limit = 5 + customer % 7;
        let request = Request::get("/").header("x-key", customer).header("x-plan", limit).body(()).unwrap();
        let service = service.clone();
        async move { send(&service, request).await.status() == StatusCode::OK }
    };
    let rounds = (0..2).map(|_| {
        let asks: Vec<_> = (0..13).flat_map(|_| (0..50).map(ask)).collect();
        tokio::spawn(async move {
            let mut passed = 0;
            for ask in asks {
                passed += u32::from(ask.await);
            }
            passed
        })
    });
    let mut passed = 0;
    for round in rounds.collect::<Vec<_>>() {
        passed += round.await.unwrap();
    }
    assert_eq!(passed, (0..50).map(|customer| 5 + customer % 7).sum::<u32>());
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
