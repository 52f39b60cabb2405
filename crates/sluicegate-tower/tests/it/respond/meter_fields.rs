//! Where the client stands once its request is served, which is what the fields of the response say.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
use sluicegate_tests::around;
use sluicegate_tower::rate_limit::Decided;
use sluicegate_tower::respond::LegacyReset;
use sluicegate_tower::{Limit, Meter};
use tower::Layer;

use crate::rate_limit::meter::metered;
use crate::support::{
    Body, Paused, all_fields, by_header, described, fields, from, layer, number, on, reading, send, store,
};

fn per_minute(name: &str) -> RateLimiter {
    on(&store().0, Policy::fixed_window(name, "1000/min"))
}

/// The response to a request that costs ten at first, and for which this is done.
async fn served<F>(limit: Limit, use_it: impl Fn(Meter) -> F + Clone) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let layer = all_fields(limit.cost(10).unwrap()).meter().build().unwrap();
    send(&layer.layer(metered(use_it)), reading(from("ada"))).await
}

fn remaining(response: &Response<Body>) -> u64 {
    let left = number(response, "x-ratelimit-remaining").unwrap();
    let listed = &described(response, "ratelimit").unwrap()[0].1;
    assert_eq!(listed["r"], left);
    let decision: &Decided = response.extensions().get().expect("layers further out see the same");
    assert_eq!(decision.remaining(), left);
    left
}

#[tokio::test]
async fn fields_say_what_is_left_after_the_request_was_settled() {
    // After 5,000 of 1,000 a minute they said that 990 were left.
    for (actual, left) in [(5_000, 0), (1_000, 0), (400, 600), (10, 990), (3, 997), (0, 1_000)] {
        let settle = move |meter: Meter| async move { drop(meter.settle(actual).await.unwrap()) };
        let response = served(by_header(per_minute("tokens")), settle).await;
        assert_eq!(remaining(&response), left, "settled at {actual}");
        let charge =
            move |meter: Meter| async move { drop(meter.refund(10).await.and(meter.charge(actual).await)) };
        assert_eq!(remaining(&served(by_header(per_minute("tokens")), charge).await), left);
    }
}

#[tokio::test]
async fn a_debt_says_when_it_is_paid() {
    let tokens = on(&store().0, Policy::gcra("tokens", "60/min"));
    let response =
        served(by_header(tokens), |meter| async move { drop(meter.settle(90).await.unwrap()) }).await;
    assert_eq!(
        fields(&response),
        [
            r#"ratelimit-policy: "tokens";q=60;w=60"#,
            r#"ratelimit: "tokens";r=0;t=31"#,
            "x-ratelimit-limit: 60",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 90",
        ]
    );
}

#[tokio::test]
async fn a_charge_that_is_not_waited_for_is_in_the_fields_where_the_store_answers_at_once() {
    let response =
        served(by_header(per_minute("tokens")), |meter| async move { drop(meter.charge(90)) }).await;
    assert_eq!(remaining(&response), 900);
}

#[tokio::test]
async fn a_store_far_away_is_believed_as_far_as_it_has_answered() {
    let far_away = || {
        let store = around::late(&store().0);
        by_header(Policy::fixed_window("tokens", "1000/min").on(Arc::clone(&store)).unwrap())
    };
    let awaited = served(far_away(), |meter| async move { drop(meter.settle(400).await.unwrap()) }).await;
    assert_eq!(remaining(&awaited), 600);
    let dropped = served(far_away(), |meter| async move { drop(meter.settle(400)) }).await;
    assert_eq!(remaining(&dropped), 990);
}

#[tokio::test]
async fn of_several_changes_the_last_one_counts() {
    let response = served(by_header(per_minute("tokens")), |meter| async move {
        let early = meter.charge(90);
        let _ = meter.charge(300).await.unwrap();
        // Answered before, and only looked at now.
        let _ = early.await.unwrap();
    });
    assert_eq!(remaining(&response.await), 600);
}

#[tokio::test]
async fn a_change_of_one_limit_leaves_the_other_as_it_was_decided() {
    let (store, _) = store();
    let requests = by_header(on(&store, Policy::fixed_window("requests", "5/min")));
    let tokens = by_header(on(&store, Policy::fixed_window("tokens", "1000/min").and("5000/h")));
    let layer = all_fields(requests).and(tokens.cost(10).unwrap()).meter().build().unwrap();
    let handler = metered(|meter| async move { drop(meter.of("tokens").settle(997).await.unwrap()) });
    let response = send(&layer.layer(handler), from("ada")).await;
    let left =
        described(&response, "ratelimit").unwrap().into_iter().map(|(name, numbers)| (name, numbers["r"]));
    let expected = [("requests", 4), ("tokens.1min", 3), ("tokens.1h", 4_003)];
    assert_eq!(left.collect::<Vec<_>>(), expected.map(|(name, left)| (name.to_owned(), left)));
    assert_eq!(number(&response, "x-ratelimit-limit"), Some(1_000), "the tightest of all is told");
}

#[tokio::test]
async fn layers_that_stack_all_say_what_is_left() {
    let (store, _) = store();
    let metered_by = |name: &str| {
        let limit = by_header(on(&store, Policy::fixed_window(name, "1000/min"))).cost(10).unwrap();
        all_fields(limit).meter().build().unwrap()
    };
    let handler = metered(|meter| async move { drop(meter.settle(400).await.unwrap()) });
    let inner = layer(&store, "requests", "1000/min").layer(metered_by("inner").layer(handler));
    let response = send(&metered_by("outer").layer(inner), from("ada")).await;
    let left =
        described(&response, "ratelimit").unwrap().into_iter().map(|(name, numbers)| (name, numbers["r"]));
    let expected = [("outer", 600), ("requests", 999), ("inner", 600)];
    assert_eq!(left.collect::<Vec<_>>(), expected.map(|(name, left)| (name.to_owned(), left)));
}

#[tokio::test]
async fn a_policy_in_shadow_is_in_no_field_whatever_is_charged() {
    let (store, _) = store();
    let tried = by_header(on(&store, Policy::fixed_window("tried", "1000/min").shadow()));
    let limit = by_header(on(&store, Policy::fixed_window("tokens", "1000/min")));
    let layer = all_fields(tried).and(limit).meter().build().unwrap();
    let handler = metered(|meter| async move { drop(meter.settle(400).await.unwrap()) });
    let response = send(&layer.layer(handler), reading(from("ada"))).await;
    assert_eq!(remaining(&response), 600);
    assert_eq!(described(&response, "ratelimit").unwrap().len(), 1);
}

#[tokio::test]
async fn a_policy_that_was_replaced_meanwhile_is_the_one_that_is_told() {
    let limiter = per_minute("tokens");
    let handle = limiter.clone();
    let response = served(by_header(limiter), move |meter| {
        let larger = Policy::fixed_window("tokens", "5000/h").and("100/s").build().unwrap();
        handle.replace(larger, Inherit::Reset).unwrap();
        async move { drop(meter.charge(40).await.unwrap()) }
    });
    let response = response.await;
    let names = |name: &str| described(&response, name).unwrap().into_iter().map(|(quota, _)| quota);
    assert_eq!(names("ratelimit").collect::<Vec<_>>(), ["tokens.1h", "tokens.1s"]);
    assert_eq!(names("ratelimit-policy").collect::<Vec<_>>(), ["tokens.1h", "tokens.1s"]);
    assert_eq!(number(&response, "x-ratelimit-limit"), Some(100));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_says_so_after_it_was_settled() {
    let store = crate::support::paused_store();
    let policy = Policy::leaky_bucket("tokens", "2/s burst 1").wait_up_to(Duration::from_secs(5));
    let limiter = on(&store, policy);
    let _ = limiter.check("ada").await.unwrap();
    let layer = all_fields(by_header(limiter)).meter().build().unwrap();
    let service = layer.layer(metered(|meter| async move { drop(meter.settle(0).await.unwrap()) }));
    let response = send(&service, reading(from("ada"))).await;
    let decision: &Decided = response.extensions().get().unwrap();
    assert!(decision.is_allowed() && decision.delay() == Duration::from_millis(500));
    assert_eq!(number(&response, "x-ratelimit-remaining"), Some(1));
}

/// The moment of the request and the wait since the charge were added: the reset came as long too early as the request took.
#[tokio::test]
async fn the_moment_of_a_reset_is_reckoned_from_the_charge_and_not_from_the_request() {
    let (store, clock) = store();
    let tokens = by_header(on(&store, Policy::gcra("tokens", "60/min"))).cost(10).unwrap();
    let beside = by_header(on(&store, Policy::gcra("beside", "60/min"))).cost(9).unwrap();
    let layer = all_fields(tokens).and(beside).meter().legacy_reset(LegacyReset::Epoch);
    let now = clock.now_us() / 1_000_000;
    let handler = metered(move |meter| {
        clock.advance(Duration::from_secs(4));
        async move { drop(meter.of("tokens").charge(10).await.unwrap()) }
    });
    let response = send(&layer.build().unwrap().layer(handler), reading(from("ada"))).await;
    // 20 were spent in all, of which 4 have drained.
    assert_eq!(number(&response, "x-ratelimit-reset"), Some(now + 20));
    let decided: &Decided = response.extensions().get().unwrap();
    assert_eq!(decided.stands_at(), Duration::from_secs(now + 4));
    let resets: Vec<_> = decided.quotas().iter().map(|status| status.reset_after().as_secs()).collect();
    assert_eq!(resets, [16, 5], "the one beside has drained, too");
}

/// The delay was forgotten as well.
#[tokio::test(start_paused = true)]
async fn the_moment_of_a_reset_counts_the_wait_for_a_turn_once() {
    let store = MemoryStore::builder().clock(Paused::now()).build().unwrap();
    let waits =
        Policy::gcra("tokens", "60/min burst 10").wait_up_to(Duration::from_secs(9)).on(&store).unwrap();
    let limit = by_header(waits).cost(10).unwrap();
    let layer = all_fields(limit).meter().legacy_reset(LegacyReset::Epoch).build().unwrap();
    let handler = metered(|meter| async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(meter.charge(0).await.unwrap());
    });
    let service = layer.layer(handler);
    let mut resets = Vec::new();
    let start = tokio::time::Instant::now();
    for _ in 0..2 {
        let response = send(&service, reading(from("ada"))).await;
        let decided: &Decided = response.extensions().get().unwrap();
        resets.push((decided.delay().as_secs(), number(&response, "x-ratelimit-reset").unwrap()));
    }
    // The second waits for seven seconds; then ten units are out, and both times three of them drain.
    assert_eq!((start.elapsed().as_secs(), resets[0].0, resets[1].0), (13, 0, 7));
    assert_eq!(resets[1].1 - resets[0].1, 10);
}
