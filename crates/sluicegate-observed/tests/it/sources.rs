//! What comes to an observed store beside decisions: from layers, from permits, from stores that fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{DecisionFuture, Event, ForwardedFault, Subject, Undecided};
use sluicegate_core::{Key, OnOutage, Policy, Store, StoreError};
use sluicegate_in_flight::InFlight;
use sluicegate_observed::{Observed, StoreState};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::answer;
use sluicegate_tests::memory::store;
use sluicegate_tests::process::alone;

use super::counts::observed;

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
    assert_eq!((of_allows.allowed, of_denies.outage), (4, 3), "as their callers were told");
    let (state, errors) = (snapshot.stores[0].state, snapshot.stores[0].errors);
    assert_eq!((state, errors.timeout, errors.unavailable, errors.protocol), (StoreState::Down, 4, 0, 2));
    *fails.lock().expect("nobody panics") = None;
    assert!(denies.check("ada").await.expect("it answers").is_allowed());
    assert_eq!(store.snapshot().stores[0].state, StoreState::Ok);
    let heard = heard.lock().expect("nobody panics");
    let outage: Vec<_> = heard.iter().filter(|event| event.starts_with("Store")).collect();
    assert_eq!(outage, ["StoreFails", "StoreAnswers"]);
    let events = store.snapshot().events;
    assert_eq!((events.len(), events[0].what), (1, "outage"));
    assert_eq!(events[0].outage.expect("it is one").decisions, 6);
    assert!(events[0].until.is_some());
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
    drop(waiting);
    let in_vain = uploads.acquire("ada");
    in_vain.give_up();
    drop(permit);
    assert_eq!(uploads.in_use_in_all(), 0);
    assert_eq!(*heard.lock().expect("nobody panics"), ["PermitTaken", "PermitRefused", "PermitRefused"]);
    drop((store, uploads));
    observed("permits"); // the name is free: nothing keeps the store alive
}

/// Refusals of such limits were nowhere, unless a call that one page named had been made. In a process that has no other limits.
#[test]
fn limits_in_flight_are_counted_by_the_oldest_store_without_a_call_and_by_one_store_only() {
    alone(|| {
        let before = InFlight::new("before", 1).expect("a name");
        let ((first, _), (second, _)) = (observed("first"), observed("second"));
        let after = InFlight::new("after", 1).expect("a name");
        let moved = InFlight::new("moved", 1).expect("a name");
        second.in_flight(&moved);
        let refuse = || {
            for limit in [&before, &after, &moved] {
                let permit = limit.try_acquire("ada").expect("one is free");
                assert!(limit.try_acquire("ada").is_err());
                drop(permit);
            }
        };
        let counted = |store: &Observed| -> Vec<(String, u64)> {
            let limits = store.snapshot().in_flight.into_iter();
            limits.map(|limit| (limit.name, limit.totals.rejected)).collect()
        };
        let of =
            |names: &[&str], count| names.iter().map(|name| ((*name).to_owned(), count)).collect::<Vec<_>>();
        refuse();
        assert_eq!((counted(&first), counted(&second)), (of(&["after", "before"], 1), of(&["moved"], 1)));
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || [&first, &second].map(Observed::rebind));
        let told = recorder.handle().render();
        for name in ["before", "after", "moved"] {
            let labels = r#"result="rejected",decided_by="permits",mode="enforce""#;
            let line = format!("rate_limit_requests_total{{policy=\"{name}\",{labels}}} 1\n");
            assert!(told.contains(&line), "{line}: {told}");
        }
        // When the first store is gone, the other one counts them.
        drop(first);
        drop(counted(&second));
        refuse();
        let [after, before, moved] = &counted(&second)[..] else { panic!("all three") };
        assert_eq!([after.1, before.1, moved.1], [1, 1, 2]);
        let policy = Policy::gcra("after", "5/min").on(&second).expect("it fits");
        assert_eq!(second.snapshot().policies[0].totals.rejected, 0, "a policy of that name is another");
        drop(policy);
    });
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
        _ = answer(limiter.check("ada").reserve(Duration::from_secs(2)));
        _ = answer(limiter.peek("ada"));
    }
    assert_eq!(*heard.lock().expect("nobody panics"), ["Consumed", "Rejected", "Delayed"]);
}

/// What layers tell goes inward through every store: no store on its way may tell it once more.
#[tokio::test]
async fn each_notice_reaches_a_listener_once_around_a_store_with_a_fallback() {
    let (memory, _) = store();
    let resilient = Resilient::new(memory);
    let store = Observed::named("once", &resilient).expect("the name is free");
    let heard = heard(&store);
    let as_store: Arc<dyn Store> = (&store).into();
    let uploads = InFlight::new("uploads", 1).expect("a name");
    store.in_flight(&uploads);
    let key = Key::from("ada");
    let subject = Subject::of("p").with_key(key.as_ref());
    for why in Undecided::ALL {
        as_store.notice(&Event::Undecided(subject, why));
    }
    as_store.notice(&Event::TurnGivenUp(subject));
    as_store.notice(&Event::Paused(subject, Duration::from_secs(1)));
    for fault in ForwardedFault::ALL {
        store.listener().event(&Event::ForwardedFault(fault));
    }
    let permit = uploads.try_acquire("ada").expect("the first");
    assert!(uploads.try_acquire("ada").is_err());
    drop(permit);
    let p = Policy::gcra("p", "5/min").suspend(2, "10min", "30min").on(&store).expect("it fits");
    assert!(
        !p.suspensions().suspend("ada", Duration::from_secs(60)).await.expect("memory answers").is_allowed()
    );
    let replaced = Policy::gcra("p", "6/min").build().expect("a policy");
    p.replace(replaced, Inherit::Spent).expect("it fits");
    let expected = [
        &["Undecided"; Undecided::ALL.len()][..],
        &["TurnGivenUp", "Paused"],
        &["ForwardedFault"; 4],
        &["PermitTaken", "PermitRefused", "Suspended", "PolicyReplaced"],
    ];
    assert_eq!(*heard.lock().expect("nobody panics"), expected.concat());
    let events = store.snapshot().events;
    assert_eq!(events.iter().map(|event| event.what).collect::<Vec<_>>(), ["suspended", "quota_changed"]);
}

/// A listener that is slow holds up whoever calls it, and a queue in front of it nobody.
#[tokio::test]
async fn events_that_nobody_takes_in_time_are_counted_and_hold_no_request_up() {
    let (store, _) = observed("slow");
    let refused = |event: &Event<'_>| match event {
        Event::Rejected { subject, .. } => subject.policy.map(str::to_owned),
        _ => None,
    };
    let (mut slow, mut fast) = (store.events(2, refused), store.events(100, refused));
    let login = Policy::gcra("login", "1/h").on(&store).expect("it fits");
    for _ in 0..6 {
        _ = answer(login.check("ada"));
    }
    assert_eq!((slow.dropped(), fast.dropped(), store.snapshot().stores[0].events_dropped), (3, 0, 3));
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || store.rebind());
    let told = recorder.handle().render();
    assert!(told.contains(r#"rate_limit_events_dropped_total{store="slow"} 3"#), "{told}");
    for events in [&mut slow, &mut fast] {
        assert_eq!(events.next().await.as_deref(), Some("login"));
    }
    _ = answer(login.check("ada"));
    assert_eq!(slow.dropped(), 3, "there was room again");
    drop(fast);
    _ = answer(login.check("ada"));
    assert_eq!(store.snapshot().stores[0].events_dropped, 4, "a queue that is gone drops nothing");
    drop((store, login));
    let left = [slow.next().await, slow.next().await, slow.next().await];
    assert_eq!(left.map(|event| event.is_some()), [true, true, false], "it ends with its store");
}

/// A suspension is kept by the outermost store, whose buckets the one within knew only by its own preparation.
#[test]
fn suspensions_are_counted_through_a_store_around_the_observed_one() {
    let (store, _) = observed("within");
    let outer = around(&store, |within, asks| within.decide(asks));
    let login = Policy::fixed_window("login", "1/h").suspend(2, "10min", "30min").on(outer).expect("it fits");
    for _ in 0..6 {
        _ = answer(login.check("ada"));
    }
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || store.rebind());
    let told = recorder.handle().render();
    let count = |result: &str, count: u32| {
        told.contains(&format!(
            r#"rate_limit_requests_total{{policy="login",result="{result}",decided_by="store",mode="enforce"}} {count}"#
        ))
    };
    assert!(count("allowed", 1) && count("rejected", 2) && count("suspended", 3), "{told}");
    assert!(told.contains(r#"rate_limit_suspensions_total{policy="login"} 1"#), "{told}");
    assert_eq!(store.snapshot().events.last().map(|event| event.what), Some("suspended"));
}

#[test]
fn an_operator_who_suspends_is_named_in_events() {
    let (store, _) = observed("operator");
    let login = Policy::gcra("login", "1/h").suspend(2, "10min", "30min").on(&store).expect("it fits");
    drop(answer(login.suspensions().by("grace").suspend("ada", Duration::from_secs(60))));
    drop(answer(login.suspensions().by("grace").release("ada")));
    drop(answer(login.suspensions().suspend("ada", Duration::from_secs(60))));
    let events = store.snapshot().events;
    let told: Vec<_> = events.iter().map(|event| (event.what, event.by.as_deref())).collect();
    let by_hand = ("suspended", Some("by hand"));
    assert_eq!(told, [("suspended", Some("grace")), ("released", Some("grace")), by_hand]);
    let lengths: Vec<_> = events.iter().map(|event| event.to.as_deref()).collect();
    assert_eq!(lengths, [Some("1min"), None, Some("1min")]);
}

/// Once a client with a hundred addresses could hide from the page whatever it wanted.
#[test]
fn events_of_a_kind_drive_out_each_other_and_no_other_event() {
    let (store, _) = observed("driven-out");
    let login = || Policy::gcra("login", "1/h").suspend(2, "10min", "30min");
    let limiter = login().on(&store).expect("it fits");
    let flood = |from: u64| {
        for key in from..from + 150 {
            (0..3).for_each(|_| drop(answer(limiter.check(key))));
        }
    };
    flood(0);
    drop(answer(limiter.suspensions().by("grace").suspend("ada", Duration::from_secs(60))));
    limiter.replace(login().hidden().build().expect("a policy"), Inherit::AsIs).expect("it fits");
    flood(1_000);
    let events = store.snapshot().events;
    let rest: Vec<_> =
        events.iter().filter(|event| event.by.is_some() || event.what != "suspended").collect();
    assert_eq!(rest.iter().map(|event| event.what).collect::<Vec<_>>(), ["suspended", "policy_replaced"]);
    assert_eq!(
        (events.len(), events[0].by.as_deref(), events[1].what),
        (42, Some("grace"), "policy_replaced")
    );
    flood(2_000);
    drop(answer(limiter.suspensions().by("grace").release("ada")));
    let events = store.snapshot().events;
    assert_eq!(
        (events.len(), events.last().map(|event| event.what)),
        (43, Some("released")),
        "in their order"
    );
    for second in 0..100 {
        drop(answer(limiter.suspensions().by("ada").suspend(second, Duration::from_secs(60))));
    }
    let events = store.snapshot().events;
    assert_eq!((events.len(), events[0].what), (82, "policy_replaced"), "nor do those of operators");
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
    clock.advance(Duration::from_secs(61));
    assert_eq!(store.snapshot().policies[0].suspended_seen, 0);
    // A key that was released went on being called suspended.
    let until = || store.snapshot().policies[0].offenders[0].suspended_until;
    assert!(until().is_some());
    drop(answer(login.suspensions().release("ada")));
    assert_eq!(until(), None);
}
