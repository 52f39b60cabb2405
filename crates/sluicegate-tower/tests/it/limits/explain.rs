//! What limits say of a request without deciding on it.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use proptest::prelude::*;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::{Key, MemoryStore, OnOutage, Policy};
use sluicegate_tests::around::lost;
use sluicegate_tower::key::{
    ApiKey, Extraction, MissingKey, OnMissingKey, PeerAddr, RequestMethod, extract_fn,
};
use sluicegate_tower::limits::{Choose, Explanation, Group, Limits, Tiers, WouldBe, method_in, path_in};
use sluicegate_tower::{Limit, PeerIp};

use crate::support::{anonymous, answer, by_header, from, on, paused_store, store};

/// Why each limit asks nothing, or the empty text.
fn reasons(explained: &Explanation) -> Vec<(&str, &str)> {
    let why =
        |asks: &Result<_, String>| asks.as_ref().err().map(String::as_str).unwrap_or_default().to_owned();
    let limits = explained.limits.iter();
    limits.map(|limit| (&*limit.name, &*Box::leak(why(&limit.asks).into_boxed_str()))).collect()
}

#[tokio::test]
async fn every_limit_is_listed_in_order_with_why_it_asks_nothing() {
    let (store, _) = store();
    let limit = |name: &str| by_header(on(&store, Policy::gcra(name, "10/min")));
    let plans = Tiers::builder(&on(&store, Policy::gcra("plans", "5/min")))
        .tier("free", "5/min")
        .unlimited("pro")
        .default_tier("pro");
    let limits = Limits::builder(limit("api"))
        .and(limit("login").only_if(path_in(["/login"]).unwrap()))
        .and(limit("costly").cost_fn(|_| 0))
        .and(Limit::tiered(plans.build().unwrap(), |_| None))
        .and(
            Limit::new(on(&store, Policy::gcra("by-key", "5/min")))
                .key(ApiKey::header("x-api-key").unwrap())
                .on_missing_key(OnMissingKey::Skip),
        )
        .and(Group::new(Choose::First).and(limit("first")).and(limit("second")))
        .build()
        .unwrap();
    let explained = limits.explain(&from("ada")).await;
    assert_eq!(explained.outcome, WouldBe::Allowed);
    assert_eq!(
        reasons(&explained),
        [
            ("api", ""),
            ("login", "a condition of it does not hold"),
            ("costly", "the request costs nothing"),
            ("plans", "the request is unlimited"),
            ("by-key", "the header x-api-key is missing, and it skips such requests"),
            ("first", ""),
            ("second", "a limit before it in its group applies, or its group does not"),
        ]
    );
}

#[tokio::test]
async fn it_is_written_for_people() {
    let (store, _) = store();
    let by_peer = PeerIp::new();
    let plans = on(&store, Policy::gcra("plans", "1/min").and("50/h"));
    let plans = Tiers::builder(&plans).tier("free", "2/min, 100/h").default_tier("free");
    let plan = Limit::tiered(plans.build().unwrap(), |_| None).key((by_peer, RequestMethod));
    let secret =
        Limit::new(on(&store, Policy::gcra("secret", "5/min"))).key(ApiKey::header("x-api-key").unwrap());
    let limits = Limits::builder(plan).and(secret).build().unwrap();
    let mut request = Request::get("/").header("x-api-key", "s3cret").body(()).unwrap();
    request.extensions_mut().insert(PeerAddr(SocketAddr::from(([192, 0, 2, 7], 443))));
    for _ in 0..2 {
        drop(limits.decide(&request).await.unwrap());
    }
    let text = limits.explain(&request).await.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "is refused with 429: the request exceeds policy plans: 2/min, 100/h (gcra); could pass after 30s"
    );
    assert_eq!(
        lines[1],
        "  plans: asks 1 of plans: 2/min, 100/h (gcra) for 192.0.2.7 \"GET\", tier free; 0 of 2 left, room after 30s, all back after 60s; 98 of 100 left, all back after 72s"
    );
    let digest = lines[2].strip_prefix("  secret: asks 1 of secret: 5/min (gcra) for Key(").unwrap();
    assert!(digest.ends_with("); 3 of 5 left, all back after 24s"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_spent_and_no_place_is_taken() {
    let store = paused_store();
    let waits = on(&store, Policy::gcra("waits", "1/min").wait_up_to(Duration::from_secs(90)));
    let tried = on(&store, Policy::gcra("tried", "1/min").shadow());
    let limits = Limits::builder(by_header(waits.clone()))
        .and(by_header(tried.clone()))
        .longest_queue(0)
        .build()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(limits.explain(&from("ada")).await.outcome, WouldBe::Allowed);
    }
    assert_eq!((answer(waits.peek("ada")).remaining(), answer(tried.peek("ada")).remaining()), (1, 1));
    drop(limits.decide(&from("ada")).await.unwrap());
    let explained = limits.explain(&from("ada")).await;
    assert_eq!(explained.outcome, WouldBe::Delayed(Duration::from_secs(60)));
    assert_eq!(
        explained.limits[1].asks.as_ref().unwrap().quotas[0].remaining(),
        0,
        "the policy in shadow stands too"
    );
    assert_eq!((limits.waiting(), limits.shadow_counts()[0].passed), (0, 1));
}

/// The wait after which a request could pass that is refused.
fn retry_after(outcome: &WouldBe) -> Duration {
    let WouldBe::Refused { retry_after: Some(wait), .. } = outcome else { panic!("{outcome:?}") };
    *wait
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_waits_is_refused_until_its_turn_would_come_in_time() {
    let store = paused_store();
    let waits = on(&store, Policy::gcra("waits", "5/min").wait_up_to(Duration::from_secs(10)));
    let strict = on(&store, Policy::gcra("strict", "12/min burst 6"));
    let _ = waits.charge("ada", 5).await.unwrap();
    let alone = Limits::new(by_header(waits.clone()));
    // There is room in 12 s, and a request that comes in 2 s may wait for it: it once said 12 s.
    assert_eq!(retry_after(&alone.explain(&from("ada")).await.outcome), Duration::from_secs(2));
    let both = Limits::builder(by_header(waits)).and(by_header(strict.clone())).build().unwrap();
    let _ = strict.charge("ada", 6).await.unwrap();
    // The other one does not wait, and has room in 5 s.
    assert_eq!(retry_after(&both.explain(&from("ada")).await.outcome), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_queue_says_when_its_turn_comes() {
    let store = paused_store();
    let queue = on(&store, Policy::leaky_queue("queue", "12/min burst 2"));
    let limits = Limits::new(by_header(queue));
    for waits in [0, 5] {
        let expected = match Duration::from_secs(waits) {
            Duration::ZERO => WouldBe::Allowed,
            wait => WouldBe::Delayed(wait),
        };
        assert_eq!(limits.explain(&from("ada")).await.outcome, expected);
        let limits = limits.clone();
        drop(tokio::spawn(async move { drop(limits.decide(&from("ada")).await) }));
        tokio::task::yield_now().await;
    }
    assert_eq!(retry_after(&limits.explain(&from("ada")).await.outcome), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_a_wait_delays_beside_a_cost_that_could_not_be_held() {
    let store = paused_store();
    let queue = on(&store, Policy::leaky_queue("queue", "12/min burst 2"));
    let costly = by_header(on(&store, Policy::gcra("api", "10/min"))).cost(6).unwrap();
    let limits = Limits::builder(by_header(queue.clone())).and(costly).build().unwrap();
    drop(Limits::new(by_header(queue)).decide(&from("ada")).await.unwrap());
    let explained = limits.explain(&from("ada")).await.outcome;
    let start = tokio::time::Instant::now();
    assert!(limits.decide(&from("ada")).await.is_ok());
    assert_eq!(
        (explained, start.elapsed()),
        (WouldBe::Delayed(Duration::from_secs(5)), Duration::from_secs(5))
    );
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_policy_that_counts_refused_requests_is_a_lower_bound() {
    let store = paused_store();
    let limits =
        Limits::new(by_header(on(&store, Policy::gcra("api", "4/min").count_rejected())).cost(2).unwrap());
    drop(limits.decide(&from("ada")).await.unwrap());
    tokio::time::advance(Duration::from_secs(1)).await;
    drop(limits.decide(&from("ada")).await.unwrap());
    tokio::time::advance(Duration::from_secs(14)).await;
    let explained = limits.explain(&from("ada")).await;
    let text = explained.to_string();
    assert!(
        text.contains("refused requests count, so that the wait grows with each of them; could pass"),
        "{text}"
    );
    assert!(text.contains("room after at least 15s"), "{text}");
    let said = retry_after(&explained.outcome);
    let refused = limits.decide(&from("ada")).await.unwrap_err();
    let told = refused.refusal(&from("ada")).retry_after_seconds().map(Duration::from_secs);
    assert_eq!((said, told), (Duration::from_secs(15), Some(Duration::from_secs(30))));
}

#[tokio::test]
async fn a_request_that_no_store_is_asked_about_is_explained_too() {
    let (store, _) = store();
    let api = || by_header(on(&store, Policy::gcra("api", "10/min")));
    let limits = Limits::builder(api())
        .exempt(path_in(["/health"]).unwrap())
        .exempt_async(|request| std::future::ready(request.uri.path() == "/partner"))
        .deny(path_in(["/admin"]).unwrap())
        .build()
        .unwrap();
    let to = |path: &str| Request::get(path).header("x-key", "ada").body(()).unwrap();
    for path in ["/health", "/partner"] {
        let explained = limits.explain(&to(path)).await;
        assert_eq!(
            (explained.outcome.clone(), reasons(&explained)),
            (WouldBe::Exempt, vec![("api", "the request is exempt")])
        );
    }
    let WouldBe::Refused { status, .. } = limits.explain(&to("/admin")).await.outcome else {
        panic!("it is denied")
    };
    assert_eq!(status, StatusCode::FORBIDDEN);
    let strict = api().on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let WouldBe::Refused { status, .. } = Limits::new(strict).explain(&anonymous()).await.outcome else {
        panic!("its key is missing")
    };
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let nothing = Limits::new(api().only_if(|_| false));
    assert_eq!(nothing.explain(&from("ada")).await.outcome, WouldBe::Unlimited);
}

#[tokio::test]
async fn a_store_without_an_answer_is_explained_by_what_the_policy_says_of_it() {
    let (store, _) = store();
    let lost = lost(&store, StoreErrorKind::Timeout);
    for (on_outage, passes) in [(OnOutage::Allow, true), (OnOutage::Deny, false)] {
        let name = if passes { "allows" } else { "denies" };
        let policy = Policy::gcra(name, "10/min").on_outage(on_outage).on(lost.clone()).unwrap();
        let explained = Limits::new(by_header(policy)).explain(&from("ada")).await;
        assert!(explained.limits[0].asks.as_ref().unwrap().quotas.is_empty());
        match explained.outcome {
            WouldBe::Uncounted => assert!(passes),
            WouldBe::Refused { status, .. } => {
                assert_eq!((status, passes), (StatusCode::SERVICE_UNAVAILABLE, false))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Limits of every kind, on a path, method and header of each request.
fn many(store: &MemoryStore) -> Limits {
    let limit = |name: &str, quota: &str| by_header(on(store, Policy::gcra(name, quota)));
    let plans = Tiers::builder(&on(store, Policy::gcra("plans", "5/min")))
        .tier("free", "6/min")
        .tier_with("pro", on(store, Policy::sliding_counter("pro", "9/min")))
        .unlimited("root");
    let plans = plans.reject_unknown(StatusCode::PAYMENT_REQUIRED).build().unwrap();
    let plan = Limit::tiered(plans, |request| request.headers.get("x-plan")?.to_str().ok());
    let later = extract_fn(|request| {
        let key = request.headers.get("x-key").map(|key| Key::from(key.as_bytes()));
        Extraction::pending(async move {
            tokio::task::yield_now().await;
            key.ok_or_else(|| MissingKey::new("none"))
        })
    });
    let group = Group::new(Choose::First)
        .and(limit("login", "3/min").only_if(path_in(["/login"]).unwrap()))
        .and(limit("writes", "4/min").only_if(method_in([Method::POST])).cost(2).unwrap())
        .and(limit("others", "7/min").key(later));
    let waits = on(store, Policy::gcra("waits", "5/min").wait_up_to(Duration::from_secs(10)));
    let sooner = on(store, Policy::gcra("sooner", "30/min burst 3").wait_up_to(Duration::from_secs(3)));
    let queue = on(store, Policy::leaky_queue("queue", "12/min burst 2").wait_up_to(Duration::from_secs(6)));
    let line = by_header(on(store, Policy::leaky_queue("line", "12/min burst 2")));
    let costly = limit("costly", "10/min").cost(6).unwrap();
    Limits::builder(limit("flood", "20/min").on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED)))
        .and(group)
        .and(plan.key(Key::from("everybody")))
        .and(by_header(waits).only_if(path_in(["/slow", "/slower"]).unwrap()))
        .and(by_header(sooner).only_if(path_in(["/slower"]).unwrap()))
        .and(by_header(queue).only_if(path_in(["/queue"]).unwrap()))
        .and(line.only_if(path_in(["/line", "/costly"]).unwrap()))
        .and(costly.only_if(path_in(["/costly"]).unwrap()))
        .exempt(path_in(["/health"]).unwrap())
        .build()
        .unwrap()
}

fn request() -> impl Strategy<Value = Request<()>> {
    let (path, method) = (0..9_usize, 0..2_usize);
    (path, method, 0..4_usize, 0..4_usize).prop_map(|(path, method, key, plan)| {
        let request = Request::builder()
            .uri(
                ["/", "/login", "/slow", "/health", "/search", "/slower", "/queue", "/line", "/costly"][path],
            )
            .method([Method::GET, Method::POST][method].clone());
        let request = match key {
            3 => request,
            key => request.header("x-key", ["ada", "bob", "eve"][key]),
        };
        request.header("x-plan", ["free", "pro", "root", "gold"][plan]).body(()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn it_agrees_with_what_is_then_decided(requests in prop::collection::vec(request(), 25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let limits = many(&paused_store());
            for request in requests {
                let explained = limits.explain(&request).await;
                let start = tokio::time::Instant::now();
                let decided = limits.decide(&request).await;
                let outcome = match &decided {
                    Ok(admitted) if !start.elapsed().is_zero() => {
                        assert!(admitted.decided().is_some());
                        WouldBe::Delayed(start.elapsed())
                    }
                    Ok(admitted) if admitted.decided().is_some() => WouldBe::Allowed,
                    Ok(_) if request.uri().path() == "/health" => WouldBe::Exempt,
                    Ok(_) => WouldBe::Unlimited,
                    Err(refused) => {
                        let refusal = refused.refusal(&request);
                        let retry_after = refusal.retry_after_seconds().map(Duration::from_secs);
                        WouldBe::Refused { status: refusal.status(), retry_after, why: refused.to_string() }
                    }
                };
                // Turns are in whole milliseconds of the runtime's timer.
                match (&explained.outcome, &outcome) {
                    (WouldBe::Delayed(said), WouldBe::Delayed(waited)) => {
                        assert!(waited.abs_diff(*said) <= Duration::from_millis(1), "{explained}: {waited:?}");
                    }
                    (said, was) => assert_eq!(said, was, "{explained}"),
                }
            }
        });
    }
}
