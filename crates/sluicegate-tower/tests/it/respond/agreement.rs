//! One truth: the numbers in fields, body and extensions are the same, whatever the quotas, algorithms, costs and times,
//! and waiting as long as they say is enough.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::algorithm::Drain;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Algorithm, Outcome, Policy, Quota};
use sluicegate_tower::rate_limit::{Decided, RateLimitLayerBuilder};
use sluicegate_tower::respond::{HeaderFields, LegacyReset, ProblemJson, Refusal, Respond};
use sluicegate_tower::{Limit, RateLimitLayer};
use tower::Layer;

use crate::support::{
    Body, Handler, all_fields, by_header, described, from, number, on, problem, reading, send, store,
};

#[derive(Clone, Debug)]
struct AnyLimit {
    algorithm: Algorithm,
    quotas: Vec<Quota>,
    longest_ms: Option<u64>,
    cost: u64,
}

fn any_limit() -> impl Strategy<Value = AnyLimit> {
    let algorithm = prop::sample::select(&ALGORITHMS[..]);
    let quotas = prop::collection::vec((1_u64..12, 1_u64..90_000, 1_u64..12), 1..4);
    let wait = prop::option::weighted(0.2, 0_u64..5_000);
    (algorithm, quotas, wait, 1_u64..12).prop_map(|(algorithm, quotas, longest_ms, cost)| {
        let window = matches!(
            algorithm,
            Algorithm::FixedWindow(_)
                | Algorithm::SlidingCounter
                | Algorithm::SlidingLog
                | Algorithm::SlidingLogIn(_)
        );
        let quotas = quotas.into_iter().map(|(limit, period_ms, burst)| {
            let quota = Quota::new(limit, Duration::from_millis(period_ms));
            // A queue that delays above two units holds at least three.
            if window { quota } else { quota.burst(burst.max(3)) }
        });
        // A queue has one quota.
        let most = if matches!(algorithm, Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_))) {
            1
        } else {
            usize::MAX
        };
        let quotas: Vec<Quota> = quotas.take(most).collect();
        let room = quotas.iter().map(Quota::burst_size).min().unwrap_or(1);
        AnyLimit { algorithm, quotas, longest_ms, cost: 1 + cost % room }
    })
}

fn policy(index: usize, limit: &AnyLimit) -> PolicyBuilder {
    let policy = Policy::builder(format!("p{index}"), limit.algorithm, limit.quotas[0]);
    let named = |(index, quota): (usize, &Quota)| (format!("q{index}"), *quota);
    let rest = limit.quotas.iter().enumerate().skip(1).map(named);
    let policy = rest.fold(policy, |policy, (id, quota)| policy.and(quota).named(id));
    match limit.longest_ms {
        Some(longest) => policy.wait_up_to(Duration::from_millis(longest)),
        None => policy,
    }
}

/// Fields, body and extensions say the same of a response; says how long a refused client has to wait.
async fn says_one_thing(response: Response<Body>) -> Result<Option<u64>, TestCaseError> {
    let decision: Decided = response.extensions().get().cloned().expect("the decision is in the extensions");
    let [limit, remaining, reset] =
        ["limit", "remaining", "reset"].map(|name| number(&response, &format!("x-ratelimit-{name}")));
    let seconds = |wait: Duration| wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    prop_assert_eq!(limit, Some(decision.capacity()));
    prop_assert_eq!(remaining, Some(decision.remaining()));
    prop_assert_eq!(reset, Some(seconds(decision.reset_after())));
    let policies = described(&response, "ratelimit-policy").expect("a field of the draft");
    let standings = described(&response, "ratelimit").expect("a field of the draft");
    prop_assert_eq!(policies.len(), decision.quotas().len());
    prop_assert_eq!(standings.len(), decision.quotas().len());
    for (((name, policy), (same_name, shown)), standing) in
        policies.iter().zip(&standings).zip(decision.quotas())
    {
        prop_assert_eq!(name, same_name);
        prop_assert_eq!(name, decision.quota_of(standing).expect("it is labelled").label());
        prop_assert_eq!(policy["q"], standing.capacity());
        prop_assert!(policy.get("w") != Some(&0));
        prop_assert_eq!(shown["r"], standing.remaining());
        // A quota that still has room would keep a refused client away for longer than it has to wait.
        let after = seconds(standing.available_after());
        let is_told = number(&response, "retry-after").is_none_or(|wait| after <= wait);
        prop_assert!(is_told || standing.passed());
        prop_assert_eq!(shown.get("t").copied().unwrap_or(0), if is_told { after } else { 0 });
    }
    if decision.outcome() == Outcome::Allowed {
        prop_assert_eq!((response.status(), number(&response, "retry-after")), (StatusCode::OK, None));
        return Ok(None);
    }
    prop_assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait = number(&response, "retry-after").expect("a refusal that a wait helps");
    let problem = problem(response).await;
    prop_assert!(wait >= 1);
    prop_assert_eq!(&problem["retry_after"], wait);
    prop_assert_eq!(&problem["limit"], decision.capacity());
    prop_assert_eq!(&problem["remaining"], decision.remaining());
    prop_assert_eq!(&problem["reset"], seconds(decision.reset_after()));
    let violated = problem["violated-policies"].as_array().expect("a list of names");
    prop_assert!(!violated.is_empty());
    for ((name, shown), standing) in standings.iter().zip(decision.quotas()) {
        prop_assert_eq!(violated.iter().any(|violated| violated == name), !standing.passed());
        if !standing.passed() {
            prop_assert!(wait >= shown["t"], "Retry-After: {} is before t={} of {}", wait, shown["t"], name);
        }
    }
    Ok(Some(wait))
}

async fn waiting_as_told_is_enough(limits: Vec<AnyLimit>, gaps_ms: Vec<u64>) -> TestCaseResult {
    let (store, clock) = store();
    let mut limits = limits.iter().enumerate().map(|(index, any)| -> Limit {
        by_header(on(&store, policy(index, any))).cost(any.cost).expect("the cost fits every quota")
    });
    let builder = all_fields(limits.next().expect("at least one limit"));
    let layer = limits.fold(builder, |builder, limit| builder.and(limit)).build().unwrap();
    let service = layer.layer(Handler::default());
    for gap in gaps_ms {
        clock.advance(Duration::from_millis(gap));
        if let Some(wait) = says_one_thing(send(&service, reading(from("ada"))).await).await? {
            clock.advance(Duration::from_secs(wait));
            let again = says_one_thing(send(&service, reading(from("ada"))).await).await?;
            prop_assert_eq!(again, None, "refused again after waiting {} s", wait);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_agree_and_waiting_as_told_is_enough(
        limits in prop::collection::vec(any_limit(), 1..4),
        gaps_ms in prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..3_000], 1..40),
    ) {
        // Requests that wait their turn do so in tokio's paused time, while the store's clock stands still.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(waiting_as_told_is_enough(limits, gaps_ms))?;
    }
}

#[tokio::test]
async fn the_largest_quota_has_the_same_number_in_fields_and_body() {
    // Structured fields hold 15 digits, and quotas may have 16.
    let (store, _) = store();
    let most = Quota::new(4_000_000_000_000_000, Duration::from_micros(1));
    let limit = by_header(on(&store, Policy::gcra("api", most))).cost(most.limit()).unwrap();
    let service = all_fields(limit).build().unwrap().layer(Handler::default());
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    let refused = send(&service, from("ada")).await;
    let limit = number(&refused, "x-ratelimit-limit").unwrap();
    assert_eq!(described(&refused, "ratelimit-policy").unwrap()[0].1["q"], limit);
    assert_eq!(problem(refused).await["limit"], limit);
}

/// A responder of the application that answers as ours does gets its fields one by one; ours gets most of them at once.
#[tokio::test]
async fn a_refusal_by_our_responder_is_as_one_by_a_closure_that_calls_it() {
    type SetUp = fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder;
    let set_ups: [(&str, SetUp); 7] = [
        ("nothing else", |layer| layer),
        ("seconds of Unix time", |layer| layer.legacy_reset(LegacyReset::Epoch)),
        ("exposed", |layer| layer.expose_headers()),
        ("told to Envoy", |layer| layer.tell_envoy()),
        ("a second field with the wait", |layer| {
            layer.retry_after_also_in(HeaderName::from_static("x-retry-in"))
        }),
        ("a later wait", |layer| layer.spread_retry_after_by(|| Duration::from_secs(7))),
        ("no extensions", |layer| layer.without_extensions()),
    ];
    let policies = || {
        let api = Policy::gcra("api", "1/min");
        let day = Policy::fixed_window("day", "1/d");
        [
            vec![api.clone()],
            vec![api.clone().and("1/h").named("hour")],
            vec![api.clone().hidden()],
            vec![api.clone(), day.clone()],
            vec![api.clone().hidden(), day],
            vec![api.clone().suspend(2, "1h", "30min")],
            vec![api.wait_up_to(Duration::from_millis(1))],
        ]
    };
    for ((name, set_up), headers) in
        set_ups.iter().flat_map(|set_up| HeaderFields::ALL.map(|headers| (set_up, headers)))
    {
        for policies in policies() {
            let layer = || {
                let (store, _) = store();
                let mut limits = policies.iter().map(|policy| by_header(on(&store, policy.clone())));
                let layer = RateLimitLayer::builder(limits.next().expect("a limit")).headers(headers);
                set_up(limits.fold(layer, |layer, limit| layer.and(limit)))
            };
            let ours = layer().build().unwrap().layer(Handler::default());
            let closure = |refusal: &Refusal<'_>| -> Response<Body> { ProblemJson::new().respond(refusal) };
            let theirs = layer().respond(closure).build().unwrap().layer(Handler::default());
            for accept in ["*/*", "text/html"] {
                for turn in 0..3 {
                    let asking = || {
                        let mut request = from("ada");
                        request.headers_mut().insert("accept", HeaderValue::from_static(accept));
                        request
                    };
                    let [ours, theirs] = [send(&ours, asking()).await, send(&theirs, asking()).await];
                    let [ours, theirs] = [whole(ours).await, whole(theirs).await];
                    assert_eq!(ours, theirs, "{name}, {headers}, {policies:?}, {accept}, turn {turn}");
                }
            }
        }
    }
}

/// All of a response that a client or a layer around sees, with the fields in their order.
async fn whole(
    response: Response<Body>,
) -> (StatusCode, Vec<(HeaderName, HeaderValue)>, String, Option<String>) {
    let (head, body) = response.into_parts();
    let fields = head.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let body = body.collect().await.expect("it is in memory").to_bytes();
    let decided = head.extensions.get::<Decided>().map(|decided| format!("{decided:?}"));
    (head.status, fields, String::from_utf8(body.to_vec()).expect("it is text"), decided)
}
