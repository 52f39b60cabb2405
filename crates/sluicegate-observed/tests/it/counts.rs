//! Counts of decisions: by policy, by what came of them, by time.

use std::time::{Duration, UNIX_EPOCH};

use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Key, OnOutage, Policy};
use sluicegate_observed::{Observed, PolicySnapshot, StoreState};
use sluicegate_tests::memory::answer;
use sluicegate_tests::memory::store;
use sluicegate_tests::outages::{FAILS, Scene, WORKS, admitted};
use sluicegate_tests::time::START;

/// A store that is observed, on a clock that both have.
pub(super) fn observed(name: &str) -> (Observed, ManualClock) {
    let (memory, clock) = store();
    let observed = Observed::named(name, memory).expect("the name is free");
    (observed, clock)
}

fn policy(store: &Observed, name: &str) -> PolicySnapshot {
    let snapshot = store.snapshot();
    snapshot.policies.into_iter().find(|of| of.policy.name() == name).expect("the policy is open")
}

#[test]
fn each_policy_of_a_request_counts_its_own_answer_once() {
    let (store, _) = observed("each-policy");
    let [tight, wide] = ["2/min", "5/min"].map(|quota| {
        let name = if quota == "2/min" { "tight" } else { "wide" };
        Policy::gcra(name, quota).on(&store).expect("the policy fits the store")
    });
    let key = Key::from("ada");
    for _ in 0..3 {
        _ = answer(check_all([tight.check(&key), wide.check(&key)]));
    }
    _ = answer(wide.check("ada").cost(6));
    _ = answer(wide.peek("ada"));
    let (tight, wide) = (policy(&store, "tight"), policy(&store, "wide"));
    assert_eq!((tight.totals.allowed, tight.totals.rejected, tight.units.spent), (2, 1, 2));
    // It had room for the third, which the other refused.
    assert_eq!((wide.totals.allowed, wide.totals.other_refused, wide.units.spent), (2, 1, 2));
    assert_eq!((wide.totals.rejected, tight.totals.other_refused), (0, 0));
    assert_eq!(wide.totals.impossible, 1);
    assert_eq!((tight.near, wide.near), (1, 0), "the second request left none of two");
}

/// A check of one key is decided without an ask where one look at the key is enough.
#[test]
fn a_check_of_one_key_and_an_ask_are_counted_alike() {
    let policies = [
        (|| Policy::gcra("p", "3/min")) as fn() -> PolicyBuilder,
        || Policy::sliding_log("p", "3/min"),
        || Policy::fixed_window("p", "3/min").shadow(),
        || Policy::gcra("p", "3/min").suspend(2, "10min", "1min"),
        || Policy::gcra("p", "3/min").suspend(5, "10min", "1min").everywhere(),
        || Policy::gcra("p", "3/min").count_rejected(),
        || Policy::gcra("p", "3/min").refunds(),
        || Policy::fixed_window("p", "9/month"),
    ];
    for (number, policy) in policies.into_iter().enumerate() {
        for own in [None, Some("5/min")] {
            let counted = ["checked", "asked"].map(|how| {
                let (store, clock) = observed(&format!("{how}-{number}-{}", own.is_some()));
                let opened = policy().on(&store).expect("the policy fits the store");
                let limiter =
                    own.map_or_else(|| opened.clone(), |own| opened.with_quotas(own).expect("it fits"));
                for step in 0..60_u64 {
                    let check = limiter.check(step % 3).cost(1 + step % 2);
                    let _ = if how == "checked" { answer(check) } else { answer(check_all([check])) };
                    clock.advance(Duration::from_secs(step % 4));
                }
                let seen = self::policy(&store, "p");
                let offenders: Vec<_> =
                    seen.offenders.iter().map(|of| (of.key.clone(), of.rejected)).collect();
                (seen.totals, seen.units, seen.near, seen.new_keys, offenders, seen.budgets.len())
            });
            assert_eq!(counted[0], counted[1], "policy {number} with {own:?}");
        }
    }
}

#[test]
fn charges_and_refunds_are_units_and_no_requests() {
    let (store, _) = observed("charges");
    let limiter = Policy::gcra("p", "10/min").refunds().on(&store).expect("the policy fits the store");
    let mut receipt = answer(limiter.check("ada").cost(4)).take_receipt(0).expect("it has spent");
    _ = answer(limiter.charge("ada", 7));
    _ = answer(limiter.refund("ada", 3).of(&mut receipt));
    _ = answer(limiter.refund("ada", 3).of(&mut receipt));
    _ = answer(limiter.reset("ada"));
    let of = policy(&store, "p");
    assert_eq!((of.units.spent, of.units.charged, of.units.refunded), (4, 7, 4));
    assert_eq!(of.totals.allowed, 1);
}

#[test]
fn a_policy_that_replaces_another_one_goes_on_counting() {
    let (store, _) = observed("replaced");
    let limiter = Policy::gcra("p", "1/min").on(&store).expect("the policy fits the store");
    _ = answer(limiter.check("ada"));
    let larger = Policy::gcra("p", "2/min").shadow().build().expect("a policy");
    limiter.replace(larger, Inherit::Spent).expect("the policy fits the store");
    _ = answer(limiter.check("ada"));
    _ = answer(limiter.check("ada"));
    let of = policy(&store, "p");
    assert_eq!((of.totals.allowed, of.totals.rejected), (2, 1));
    let events = store.snapshot().events;
    assert_eq!((events.len(), events[0].what, events[0].policy.as_deref()), (1, "quota_changed", Some("p")));
    assert_eq!(
        (events[0].from.as_deref(), events[0].to.as_deref()),
        (Some("1/min, enforce"), Some("2/min, shadow"))
    );
    drop(limiter);
    assert!(store.snapshot().policies.is_empty(), "a policy that is closed is not shown");
    let again = Policy::gcra("p", "2/min").on(&store).expect("the policy fits the store");
    _ = answer(again.check("bob"));
    assert_eq!(policy(&store, "p").totals.allowed, 3, "and counts on when it is open again");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_delayed_and_waiting() {
    let (store, _) = observed("waits");
    let limiter = Policy::gcra("p", "1/s").on(&store).expect("the policy fits the store");
    _ = answer(limiter.check("ada"));
    let wait = Duration::from_secs(2);
    {
        let mut waiting = Box::pin(limiter.check("ada").acquire(wait));
        assert!(futures_now(waiting.as_mut()).is_none());
        assert_eq!(policy(&store, "p").waiting, 1);
    }
    assert_eq!(policy(&store, "p").waiting, 0, "it has left");
    assert!(limiter.check("ada").acquire(wait).await.expect("memory answers").is_allowed());
    let of = policy(&store, "p");
    assert_eq!((of.totals.allowed, of.totals.delayed, of.waiting), (1, 2, 0));
    assert_eq!((of.units.spent, of.units.refunded), (3, 1), "the turn that was given up came back");
}

fn futures_now<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn rates_are_of_seconds_and_minutes_that_are_over() {
    let (store, clock) = observed("rates");
    let limiter = Policy::gcra("p", "30/h").on(&store).expect("the policy fits the store");
    // 40 requests in the minute that the clock shows, and one in the next.
    for second in 0..40_u64 {
        _ = answer(limiter.check("ada"));
        clock.set(START + Duration::from_secs(second + 1));
    }
    let of = policy(&store, "p");
    assert_eq!((of.per_second.allowed, of.per_second.rejected), (0.0, 1.0));
    clock.set(START + Duration::from_secs(60));
    _ = answer(limiter.check("ada"));
    let minutes = policy(&store, "p").minutes;
    assert_eq!(minutes.len(), 60);
    let last = minutes.last().expect("sixty");
    assert_eq!((last.at, last.allowed, last.rejected), (UNIX_EPOCH + START, 30, 10));
    assert_eq!(last.near, 6, "those that left 5 of 30, 4, and so on");
    assert!(minutes[..59].iter().all(|minute| minute.allowed + minute.rejected + minute.near == 0));
}

#[test]
fn the_99th_percentile_is_of_the_last_two_minutes() {
    let (store, clock) = observed("p99");
    let p99 = || store.snapshot().stores[0].p99;
    assert_eq!(p99(), None, "nothing was asked");
    let limiter = Policy::gcra("p", "5/min").on(&store).expect("the policy fits the store");
    // One in 64 is timed.
    for _ in 0..10_000 {
        _ = answer(limiter.check("ada"));
    }
    assert!(p99().is_some_and(|p99| p99 > Duration::ZERO));
    clock.advance(Duration::from_secs(120));
    assert_eq!(p99(), None, "it was longer ago");
}

#[tokio::test]
async fn an_outage_is_counted_as_it_is_decided() {
    let scene = Scene::new(|builder| builder);
    let store = Observed::named("outage", &scene.store).expect("free");
    let limiter = Policy::fixed_window("p", "100/h").on_outage(OnOutage::Local).on(&store).expect("it fits");
    assert_eq!(admitted(&limiter, "ada", 3), 3);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 30), 22, "this instance has a quarter, and knows of three");
    let snapshot = store.snapshot();
    let of = &snapshot.policies[0];
    assert_eq!((of.totals.allowed, of.totals.rejected), (25, 8));
    let redis = &snapshot.stores[0];
    assert_eq!((redis.name.as_str(), redis.state, redis.opened), ("outage", StoreState::Fallback, 1));
    assert!(redis.errors.unavailable > 0 && redis.fallback_decisions == 30);
    assert!(redis.slots > 0, "the table is that of the fallback");
    let events: Vec<_> = snapshot.events.iter().map(|event| event.what).collect();
    assert_eq!(events, ["outage"]);
}

/// A login that one of its limits refused was "allowed" by the other one, and 257 logins were counted where five came through.
#[tokio::test]
async fn a_request_is_let_in_or_refused_once_and_each_policy_says_what_it_had_to_do_with_that() {
    let scene = Scene::new(|builder| builder);
    let store = Observed::named("let-in-once", &scene.store).expect("free");
    let policy =
        |name, quota, outage| Policy::gcra(name, quota).on_outage(outage).on(&store).expect("it fits");
    let address = policy("address", "3/h", OnOutage::Deny);
    let user = policy("user", "100/h", OnOutage::Allow);
    let key = Key::from("ada");
    let log_in = async || check_all([address.check(&key), user.check(&key)]).await.expect("it is decided");
    for _ in 0..10 {
        _ = log_in().await;
    }
    scene.mood(FAILS);
    for _ in 0..5 {
        assert!(!log_in().await.is_allowed(), "one of the two denies in an outage");
    }
    assert!(user.check(&key).await.expect("it is decided").is_allowed());
    let [address, user] = ["address", "user"].map(|name| self::policy(&store, name));
    let of = |policy: &PolicySnapshot| {
        let totals = policy.totals;
        [totals.allowed, totals.rejected, totals.other_refused, totals.outage]
    };
    assert_eq!((of(&address), of(&user)), ([3, 7, 0, 5], [4, 0, 12, 0]));
    assert!(user.offenders.is_empty() && address.offenders[0].rejected == 7, "an outage is no key's fault");
    let minute = address.minute;
    assert_eq!([minute.allowed, minute.rejected, minute.other_refused, minute.outage], [3, 7, 0, 5]);
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || store.rebind());
    let told = recorder.handle().render();
    for (of, count) in [
        (r#"policy="address",result="outage",decided_by="outage""#, 5),
        (r#"policy="address",result="rejected",decided_by="store""#, 7),
        (r#"policy="user",result="other_refused",decided_by="store""#, 7),
        (r#"policy="user",result="other_refused",decided_by="outage""#, 5),
        (r#"policy="user",result="allowed",decided_by="outage""#, 1),
    ] {
        let line = format!("rate_limit_requests_total{{{of},mode=\"enforce\"}} {count}\n");
        assert!(told.contains(&line), "{line}: {told}");
    }
}

/// An outage of 14 s was 16 openings of a breaker, and an event each second until the list held nothing else.
#[tokio::test]
async fn an_outage_is_one_event_from_its_beginning_to_its_end_however_often_the_store_is_tried() {
    let scene = Scene::new(|builder| builder);
    let store = Observed::named("one-outage", &scene.store).expect("free");
    let limiter = Policy::gcra("p", "100/h").on(&store).expect("it fits");
    scene.mood(FAILS);
    let _ = admitted(&limiter, "ada", 5);
    for _ in 0..20 {
        scene.advance(2);
        assert_eq!(admitted(&limiter, "ada", 1), 1);
    }
    let outage = || store.snapshot().events.last().cloned().expect("there is one");
    let running = outage();
    assert_eq!((running.what, running.until), ("outage", None));
    assert_eq!(running.to.as_deref(), Some("the store cannot be reached"));
    assert_eq!(running.outage.expect("it is one").decisions, 21, "the last of the first five, and twenty");
    scene.mood(WORKS);
    scene.advance(60);
    let _ = admitted(&limiter, "bob", 10);
    tokio::task::yield_now().await;
    let snapshot = store.snapshot();
    assert_eq!((snapshot.events.len(), snapshot.stores[0].opened), (1, 1));
    let over = outage();
    assert_eq!((over.at, over.outage.expect("it is one").decisions), (running.at, 21));
    assert!(over.until.is_some_and(|until| until > over.at), "{over:?}");
    let counts = over.outage.expect("it is one");
    assert_eq!((counts.charged, counts.left), (1, Some(0)));
    // The next one is another.
    scene.mood(FAILS);
    let _ = admitted(&limiter, "ada", 10);
    assert_eq!(store.snapshot().events.iter().map(|event| event.what).collect::<Vec<_>>(), ["outage"; 2]);
}

/// With the breaker open, the page went on to say how fast the store answers, by the answers of the fallback.
#[tokio::test]
async fn the_time_of_the_last_answer_and_the_times_of_answers_are_those_of_the_store() {
    let scene = Scene::new(|builder| builder);
    let store = Observed::named("last-answer", &scene.store).expect("free");
    let limiter = Policy::gcra("p", "100/h").on(&store).expect("it fits");
    let told = || {
        let snapshot = store.snapshot();
        (snapshot.stores[0].answered_at, snapshot.stores[0].p99)
    };
    assert_eq!(told(), (None, None));
    assert_eq!(admitted(&limiter, "ada", 200), 100);
    let (answered_at, p99) = told();
    assert!(answered_at.is_some() && p99.is_some());
    scene.mood(FAILS);
    scene.advance(200);
    let _ = admitted(&limiter, "ada", 200);
    assert_eq!(told(), (answered_at, p99), "the fallback is not the store");
    assert_eq!(store.snapshot().stores[0].replicas, Some(4));
}

#[test]
fn a_name_is_of_one_observed_store_and_a_store_is_observed_once() {
    let (store, _) = observed("twice");
    let error = Observed::named("twice", store_of_memory()).expect_err("the name is taken");
    assert_eq!(error.kind(), ConfigErrorKind::NameTaken);
    assert!(error.to_string().contains("\"twice\""), "{error}");
    let error = Observed::named("around", &store).expect_err("the store is observed");
    assert!(error.to_string().contains("\"around\"") && error.to_string().contains("\"twice\""), "{error}");
    let error = Observed::named("No name", store_of_memory()).expect_err("a blank");
    assert!(error.to_string().contains("\"No name\""), "{error}");
    drop(store);
    Observed::named("twice", store_of_memory()).expect("the name is free again");
    Observed::named("around", store_of_memory()).expect("a name that was refused is free");
}

fn store_of_memory() -> sluicegate_core::MemoryStore {
    store().0
}

#[test]
fn policies_beyond_the_first_256_count_together() {
    let (store, _) = observed("many");
    let limiters: Vec<_> = (0..300)
        .map(|number| Policy::gcra(format!("p{number}"), "5/min").table_size(1).on(&store).expect("it fits"))
        .collect();
    assert!(limiters.iter().all(|limiter| answer(limiter.check("ada")).is_allowed()));
    assert_eq!(store.snapshot().policies.len(), 256);
    assert_eq!(store.snapshot().uptime, Duration::ZERO);
}
