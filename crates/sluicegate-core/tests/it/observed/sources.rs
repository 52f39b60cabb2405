//! What comes to an observed store beside decisions: from layers, from permits, from stores that fail.

use std::sync::{Arc, Mutex};

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::in_flight::InFlight;
use sluicegate_core::observed::{Observed, StoreState};
use sluicegate_core::store::{DecisionFuture, Event, ForwardedFault, Subject, Undecided};
use sluicegate_core::{OnOutage, Policy, Store, StoreError};
use sluicegate_tests::around::around;

use super::counts::observed;
use crate::support::{answer, secs, store};

/// The names of the events that a listener hears.
fn heard(store: &Observed) -> Arc<Mutex<Vec<String>>> {
    let all = Arc::<Mutex<Vec<String>>>::default();
    let heard = Arc::clone(&all);
    store.listen(move |event: &Event<'_>| {
        let said = format!("{event:?}");
        let end = said.find([' ', '(']).unwrap_or(said.len());
        heard.lock().expect("nobody panics").push(said[..end].to_owned());
    });
    all
}

#[tokio::test]
async fn a_bare_store_that_fails_is_down_until_it_answers() {
    let fails = Arc::new(Mutex::new(None));
    let failing = Arc::clone(&fails);
    let (memory, _) = store();
    let bare = around(memory, move |within, asks| match *failing.lock().expect("nobody panics") {
        Some(kind) => DecisionFuture::pending(async move { Err(StoreError::new(kind)) }),
        None => within.decide(asks),
    });
    let store = Observed::named("bare", bare).expect("the name is free");
    let heard = heard(&store);
    let allows = Policy::gcra("allows", "5/min").on_outage(OnOutage::Allow).on(&store).expect("it fits");
    let denies = Policy::gcra("denies", "5/min").on_outage(OnOutage::Deny).on(&store).expect("it fits");
    assert!(allows.check("ada").await.expect("it answers").is_allowed());
    assert_eq!(store.snapshot().stores[0].state, StoreState::Ok);
    for kind in [StoreErrorKind::Timeout, StoreErrorKind::Timeout, StoreErrorKind::Protocol] {
        *fails.lock().expect("nobody panics") = Some(kind);
        assert!(allows.check("ada").await.expect("the policy decides").is_allowed());
        assert!(!denies.check("ada").await.expect("the policy decides").is_allowed());
    }
    let snapshot = store.snapshot();
    let [of_allows, of_denies] = [0, 1].map(|policy| snapshot.policies[policy].totals);
    assert_eq!((of_allows.allowed, of_denies.rejected), (4, 3), "as their callers were told");
    let (state, errors) = (snapshot.stores[0].state, snapshot.stores[0].errors);
    assert_eq!((state, errors.timeout, errors.unavailable, errors.protocol), (StoreState::Down, 4, 0, 2));
    *fails.lock().expect("nobody panics") = None;
    assert!(denies.check("ada").await.expect("it answers").is_allowed());
    assert_eq!(store.snapshot().stores[0].state, StoreState::Ok);
    let heard = heard.lock().expect("nobody panics");
    let outage: Vec<_> = heard.iter().filter(|event| event.starts_with("Store")).collect();
    assert_eq!(outage, ["StoreFails", "StoreAnswers"]);
}

#[test]
fn permits_count_under_the_name_that_they_are_limited_by() {
    let (store, _) = observed("permits");
    let uploads = InFlight::new("uploads", 1).expect("a name");
    store.in_flight(&uploads);
    let heard = heard(&store);
    let permit = uploads.try_acquire("ada").expect("the first");
    assert!(uploads.try_acquire("ada").is_err());
    let waiting = uploads.acquire("ada");
    drop(permit);
    let second = waiting.now();
    assert!(second.is_err(), "it is polled first");
    drop(second);
    uploads.waited_in_vain("ada");
    assert_eq!(uploads.in_use_in_all(), 0);
    assert_eq!(*heard.lock().expect("nobody panics"), ["PermitTaken", "PermitRefused", "PermitRefused"]);
    drop((store, uploads));
    observed("permits"); // the name is free: nothing keeps the store alive
}

#[test]
fn notices_reach_counts_and_listeners_once() {
    let (store, _) = observed("notices");
    let heard = heard(&store);
    let as_store: Arc<dyn Store> = (&store).into();
    as_store.notice(&Event::Undecided(Subject::of("p"), Undecided::Blocked));
    store.listener().event(&Event::ForwardedFault(ForwardedFault::Missing));
    assert_eq!(*heard.lock().expect("nobody panics"), ["Undecided", "ForwardedFault"]);
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || store.rebind());
    let told = recorder.handle().render();
    assert!(told.contains(r#"rate_limit_undecided_total{reason="blocked"} 1"#), "{told}");
    assert!(told.contains(r#"rate_limit_forwarded_faults_total{fault="missing"} 1"#), "{told}");
    _ = answer(Policy::gcra("p", "5/min").on(&store).expect("it fits").check("ada"));
}

#[test]
fn listeners_hear_of_decisions_about_policies_that_are_enforced() {
    let (store, _) = observed("decisions");
    let heard = heard(&store);
    let one = Policy::gcra("one", "1/s").on(&store).expect("it fits");
    let tried = Policy::gcra("tried", "1/s").shadow().on(&store).expect("it fits");
    for limiter in [&one, &tried] {
        _ = answer(limiter.check("ada"));
        _ = answer(limiter.check("ada"));
        _ = answer(limiter.reserve("ada", 1, secs(2)));
        _ = answer(limiter.peek("ada"));
    }
    assert_eq!(*heard.lock().expect("nobody panics"), ["Consumed", "Rejected", "Delayed"]);
}

/// A suspension asks three more buckets of the store, which are nobody's limits.
#[test]
fn a_refusal_of_a_suspended_key_is_one_and_its_buckets_are_not_counted() {
    let (store, clock) = observed("suspension");
    let login = Policy::gcra("login", "1/h").suspend(2, "10min", "30min").on(&store).expect("it fits");
    for _ in 0..6 {
        _ = answer(login.check("ada"));
    }
    _ = answer(login.check("bob"));
    let snapshot = store.snapshot();
    assert_eq!(snapshot.policies.len(), 1);
    let of = &snapshot.policies[0];
    // The first is allowed, and two are refused until the key is suspended.
    assert_eq!((of.totals.allowed, of.totals.rejected, of.totals.suspended), (2, 2, 3));
    assert_eq!(of.suspended_seen, 1);
    assert_eq!(snapshot.events.last().map(|event| event.what), Some("suspended"));
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || store.rebind());
    let told = recorder.handle().render();
    assert!(told.contains(r#"rate_limit_suspensions_total{policy="login"} 1"#), "{told}");
    assert!(!told.contains("strikes") && !told.contains("login.susp"), "{told}");
    clock.advance(secs(61));
    assert_eq!(store.snapshot().policies[0].suspended_seen, 0);
}
