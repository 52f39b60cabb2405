//! Policies that are only tried out: they count and log, and nobody else notices them.

use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Key, OnOutage, Policy, RateLimiter};
use sluicegate_tests::around::{self, Fault};
use sluicegate_tests::log::Log;
use sluicegate_tower::key::{HeaderKey, OnMissingKey};
use sluicegate_tower::limits::{ShadowCount, Tiers};
use sluicegate_tower::{Limit, Meter};
use tower::Layer;

use crate::rate_limit::meter::metered;
use crate::support::{
    Body, Handler, all_fields, anonymous, answer, by_header, described, from, layer, number, on,
    paused_store, send, store,
};

/// Passed, delayed, refused, unknown.
fn numbers(counts: &[ShadowCount]) -> Vec<(&str, [u64; 4])> {
    let numbers = |count: &ShadowCount| [count.passed, count.delayed, count.refused, count.unknown];
    counts.iter().map(|count| (&*count.policy, numbers(count))).collect()
}

#[tokio::test]
async fn a_shadow_never_refuses_and_is_never_seen() {
    let (store, _) = store();
    let enforced = by_header(on(&store, Policy::gcra("api", "10/min")));
    let tried = by_header(on(&store, Policy::gcra("stricter", "2/min").shadow()));
    let layer = all_fields(tried).and(enforced).build().unwrap();
    let handler = Handler::default();
    let service = layer.clone().decided().layer(handler.clone());
    for left in (5..10).rev() {
        let response = send(&service, from("ada")).await;
        assert_eq!(
            (response.status(), number(&response, "x-ratelimit-remaining")),
            (StatusCode::OK, Some(left))
        );
        for name in ["ratelimit", "ratelimit-policy"] {
            assert_eq!(described(&response, name).unwrap().len(), 1);
        }
        assert_eq!(handler.last_seen().unwrap().quotas().len(), 1);
    }
    assert_eq!(numbers(&layer.shadow_counts()), [("stricter", [2, 0, 3, 0])]);
}

#[tokio::test]
async fn a_shadow_that_would_refuse_spends_neither_its_own_units_nor_keeps_others_from_spending() {
    let (store, _) = store();
    let enforced = on(&store, Policy::gcra("api", "10/min"));
    let [first, second] =
        ["first", "second"].map(|name| on(&store, Policy::sliding_log(name, "2/min").shadow()));
    let costly = by_header(first.clone()).cost(2).unwrap();
    let layer = all_fields(by_header(enforced.clone())).and(costly).and(by_header(second.clone()));
    let layer = layer.build().unwrap();
    let service = layer.layer(Handler::default());
    for _ in 0..2 {
        send(&service, from("ada")).await;
    }
    assert_eq!(numbers(&layer.shadow_counts()), [("first", [1, 0, 1, 0]), ("second", [2, 0, 0, 0])]);
    assert_eq!(answer(enforced.peek("ada")).remaining(), 8);
}

#[tokio::test]
async fn what_the_enforced_limits_refuse_is_not_tried_out() {
    let (store, _) = store();
    let enforced = by_header(on(&store, Policy::gcra("api", "1/min")));
    let tried = on(&store, Policy::gcra("tried", "10/min").shadow());
    let layer = all_fields(enforced).and(by_header(tried.clone())).build().unwrap();
    let service = layer.layer(Handler::default());
    for _ in 0..3 {
        send(&service, from("ada")).await;
    }
    assert_eq!(answer(tried.peek("ada")).remaining(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_would_make_requests_wait_lets_them_go_and_counts_them() {
    let waits = Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(2)).shadow();
    let layer = all_fields(by_header(on(&paused_store(), waits))).build().unwrap();
    let service = layer.layer(Handler::default());
    let start = tokio::time::Instant::now();
    for _ in 0..4 {
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(numbers(&layer.shadow_counts()), [("waits", [1, 2, 1, 0])]);
}

#[tokio::test]
async fn a_shadow_refuses_nobody_for_want_of_a_key() {
    let (store, _) = store();
    let limit = Limit::new(on(&store, Policy::gcra("api", "1/min").shadow()))
        .key(HeaderKey::new("x-key").unwrap())
        .on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let layer = all_fields(limit).build().unwrap();
    assert_eq!(send(&layer.layer(Handler::default()), anonymous()).await.status(), StatusCode::OK);
    assert_eq!(numbers(&layer.shadow_counts()), [("api", [0; 4])]);
}

#[tokio::test]
async fn a_shadow_becomes_a_limit_and_a_limit_a_shadow_at_run_time() {
    let (store, _) = store();
    let limiter = on(&store, Policy::gcra("api", "1/min").shadow());
    let layer = all_fields(by_header(limiter.clone())).build().unwrap();
    let service = layer.layer(Handler::default());
    send(&service, from("ada")).await;
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    limiter.replace(Policy::gcra("api", "1/min").build().unwrap(), Inherit::AsIs).unwrap();
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(layer.shadow_counts().is_empty());
    limiter.replace(Policy::gcra("api", "1/min").shadow().build().unwrap(), Inherit::AsIs).unwrap();
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    assert_eq!(numbers(&layer.shadow_counts()), [("api", [1, 0, 2, 0])]);
}

#[tokio::test]
async fn a_shadow_on_a_store_that_answers_late_or_never_delays_nobody() {
    let (memory, _) = store();
    for (fails, expected) in [(None, [1, 0, 1, 0]), (Some(StoreErrorKind::Timeout), [0, 0, 0, 2])] {
        let fault = Fault::default();
        fault.set(fails);
        let remote = around::remote(&memory, &fault);
        let policy = Policy::gcra(if fails.is_some() { "dark" } else { "late" }, "1/min").shadow();
        let policy = policy.on_outage(OnOutage::Allow);
        let layer = all_fields(by_header(policy.on(remote).unwrap())).build().unwrap();
        let mut service = layer.layer(Handler::default());
        for _ in 0..2 {
            let mut response = std::pin::pin!(tower::Service::call(&mut service, from("ada")));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(response.as_mut().poll(&mut cx).is_ready(), "it waits for its shadow");
        }
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(numbers(&layer.shadow_counts())[0].1, expected);
    }
}

#[tokio::test]
async fn the_log_names_the_policy_once_a_second_and_never_the_key() {
    let (log, began) = (Log::of_this_thread(), Instant::now());
    let (store, _) = store();
    let tried = by_header(on(&store, Policy::gcra("stricter", "1/min").shadow()));
    let service = all_fields(tried).build().unwrap().layer(Handler::default());
    for _ in 0..20 {
        send(&service, from("secret")).await;
    }
    let lines = log.lines();
    assert!((1..=2 + began.elapsed().as_secs()).contains(&(lines.len() as u64)), "{lines:?}");
    assert!(lines[0].contains("sluicegate::shadow") && lines[0].contains("policy=\"stricter\""), "{lines:?}");
    assert!(!lines[0].contains("secret"), "{lines:?}");
}

#[tokio::test]
async fn policies_beyond_those_that_are_counted_share_one_line_of_the_log_a_second() {
    let (store, _) = store();
    let open = |name: &str| on(&store, Policy::gcra(name, "1/min").table_size(1).shadow());
    let tiers = (0..1_500).map(|tier| tier.to_string());
    let tiers = tiers.fold(Tiers::builder(&open("0")), |tiers, name| tiers.tier_with(&name, open(&name)));
    let tiers = tiers.reject_unknown(StatusCode::FORBIDDEN).build().unwrap();
    let limit = Limit::tiered(tiers, |request| request.headers.get("x-key")?.to_str().ok());
    let layer = all_fields(limit.key(Key::from("all"))).build().unwrap();
    let service = layer.layer(Handler::default());
    let (log, began) = (Log::of_this_thread(), Instant::now());
    for name in (0..1_500).chain(1_000..1_500) {
        let request = Request::get("/").header("x-key", name).body(()).unwrap();
        assert_eq!(send(&service, request).await.status(), StatusCode::OK);
    }
    let lines = log.lines().into_iter().filter(|line| line.contains("sluicegate::shadow")).count();
    let seconds = began.elapsed().as_secs();
    assert!((1..=2 + seconds).contains(&(lines as u64)), "{lines} lines of 500 policies in {seconds} s");
    assert_eq!(layer.shadow_counts().iter().filter(|count| count.passed > 0).count(), 1_000);
}

#[tokio::test]
async fn what_an_enforced_limit_would_give_back_a_shadow_gives_back_too() {
    let (memory, _) = store();
    for (name, store) in [("near", (&memory).into()), ("far", around::late(&memory))] {
        let login: RateLimiter = Policy::gcra(name, "2/min").shadow().on(store).unwrap();
        let limit = by_header(login.clone()).refund_if(|head| head.status.is_success());
        let layer = all_fields(limit).build().unwrap();
        let service = layer.layer(Handler::default());
        for _ in 0..5 {
            send(&service, from("ada")).await;
            // The answer may come after the response, and is waited for by a task of its own.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(numbers(&layer.shadow_counts()), [(name, [5, 0, 0, 0])]);
        let _ = login.charge("ada", 2).await.unwrap();
        send(&service, from("ada")).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(login.peek("ada").await.unwrap().remaining(), 0, "what was not spent is not given back");
    }
}

#[tokio::test]
async fn a_request_that_an_inner_layer_refuses_counts_in_no_shadow_around_it() {
    let (store, _) = store();
    let tried = on(&store, Policy::sliding_log("tried", "10/min").shadow());
    let service = all_fields(by_header(tried.clone()))
        .build()
        .unwrap()
        .layer(layer(&store, "inner", "1/min").layer(Handler::default()));
    for _ in 0..4 {
        send(&service, from("ada")).await;
    }
    assert_eq!(answer(tried.peek("ada")).remaining(), 9);
}

#[tokio::test]
async fn a_meter_charges_a_shadow_and_hears_nothing_of_it() {
    let (store, _) = store();
    let tried = on(&store, Policy::fixed_window("tokens", "100/min").shadow());
    let limit = by_header(tried.clone()).cost(10).unwrap();
    let layer = all_fields(limit).meter().build().unwrap();
    let handler = tower::service_fn(|request: http::Request<()>| {
        let meter = request.extensions().get::<Meter>().cloned().unwrap();
        async move {
            assert!(meter.of("tokens").settle(35).await.unwrap().decided().is_none());
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("ok")))
        }
    });
    send(&layer.layer(handler), from("ada")).await;
    assert_eq!(answer(tried.peek("ada")).remaining(), 65);
}

/// The receipts of such charges were once dropped, so that a shadow counted units that an enforced limit would have back.
#[tokio::test]
async fn what_a_meter_has_charged_a_shadow_comes_back_to_it() {
    let (memory, _) = store();
    for (name, store) in [("near", (&memory).into()), ("far", around::late(&memory))] {
        let tried: RateLimiter = Policy::fixed_window(name, "100/min").shadow().on(store).unwrap();
        let limit = by_header(tried.clone()).cost(10).unwrap();
        let layer = all_fields(limit).meter().build().unwrap();
        let service = layer.layer(metered(|meter| async move {
            let _ = meter.charge(30).await.unwrap();
            let _ = meter.settle(25).await.unwrap();
            let _ = meter.settle(4).await.unwrap();
        }));
        send(&service, from("ada")).await;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tried.peek("ada").await.unwrap().remaining(), 96, "{name}");
    }
}

/// Such requests were once charged all but their estimate, though they would not have been served: the shadow went into debt, and would
/// have refused requests that an enforced limit passes.
#[tokio::test]
async fn a_request_that_a_shadow_would_have_refused_costs_it_nothing_later() {
    let (memory, clock) = store();
    for (name, store) in [("near", (&memory).into()), ("far", around::late(&memory))] {
        let tried: RateLimiter = Policy::token_bucket(name, "100/min").shadow().on(store).unwrap();
        let layer = all_fields(by_header(tried.clone()).cost(10).unwrap()).meter().build().unwrap();
        let service = layer.layer(metered(|meter| async move {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            let _ = meter.settle(55).await.unwrap();
        }));
        for _ in 0..5 {
            send(&service, from("ada")).await;
        }
        assert_eq!(numbers(&layer.shadow_counts()), [(name, [2, 0, 3, 0])]);
        clock.advance(Duration::from_secs(60));
        assert_eq!(
            tried.peek("ada").await.unwrap().remaining(),
            90,
            "{name}: two have been served, and cost 110"
        );
    }
}

#[tokio::test]
async fn tiers_in_shadow_refuse_nobody_whose_tier_is_not_known() {
    let (store, _) = store();
    let free = on(&store, Policy::gcra("free", "1/min").shadow());
    let pro = on(&store, Policy::gcra("pro", "9/min").shadow());
    let tiers = Tiers::builder(&free).tier_with("free", free.clone()).tier_with("pro", pro);
    let tiers = tiers.reject_unknown(StatusCode::PAYMENT_REQUIRED).build().unwrap();
    let layer = all_fields(Limit::tiered(tiers.clone(), |_| None)).build().unwrap();
    assert_eq!(send(&layer.layer(Handler::default()), anonymous()).await.status(), StatusCode::OK);
    // One that is enforced is reason enough.
    let enforced = Policy::gcra("pro", "9/min").build().unwrap();
    tiers.limiter("pro").unwrap().replace(enforced, Inherit::AsIs).unwrap();
    let refused = send(&layer.layer(Handler::default()), anonymous()).await;
    assert_eq!(refused.status(), StatusCode::PAYMENT_REQUIRED);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_waited_for_is_given_back_in_shadow_too() {
    let store = paused_store();
    let waits = on(&store, Policy::gcra("api", "1/min").wait_up_to(Duration::from_secs(90)));
    let tried = on(&store, Policy::gcra("stricter", "3/min").shadow());
    let layer = all_fields(by_header(waits)).and(by_header(tried.clone())).build().unwrap();
    let service = layer.layer(Handler::default());
    send(&service, from("ada")).await;
    let waiting = Box::pin(send(&service, from("ada")));
    let Err(_) = tokio::time::timeout(Duration::from_secs(1), waiting).await else { panic!("it waits") };
    assert_eq!(answer(tried.peek("ada")).remaining(), 2);
}
