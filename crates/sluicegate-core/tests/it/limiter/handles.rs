//! One handle per policy name and store: whoever opens a name that is open gets the handle that is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::{self, Inherit};
use sluicegate_core::store::{Ask, DecisionFuture, Limiters, PreparedPolicy};
use sluicegate_core::{Algorithm, ConfigError, MemoryStore, Policy, Quota, RateLimiter, Store};
use sluicegate_tests::log::lines_of;

use crate::support::{ALL, answer, limiter, store};

fn policy(algorithm: Algorithm, quota: Quota) -> Policy {
    Policy::builder("p", algorithm, quota).build().expect("the policy is good")
}

/// Seen: 5 of 5 spent, replaced by 6/min through one handle, and 5 more passed through the other.
#[test]
fn a_replacement_is_seen_by_everybody_who_names_the_policy() {
    for algorithm in ALL {
        let (store, _) = store();
        let one = limiter(&store, "p", algorithm, Quota::per_minute(5));
        let other = limiter(&store, "p", algorithm, Quota::per_minute(5));
        assert!(answer(one.check("k").cost(5)).is_allowed());
        one.replace(policy(algorithm, Quota::per_minute(6)), Inherit::default()).expect("it fits");
        assert!(one.is(&other) && other.policy().quotas()[0].quota() == Quota::per_minute(6));
        let passed = (0..10).filter(|_| answer(other.check("k")).is_allowed()).count();
        assert!(passed <= 1, "{algorithm}: {passed} of the one that is left");
    }
}

/// Seen: a `replace` before an attribute's first request made that route answer 500.
#[test]
fn the_policy_that_opened_a_name_finds_the_one_that_has_replaced_it() {
    let (store, _) = store();
    let first = limiter(&store, "p", Algorithm::Gcra, Quota::per_minute(5));
    first.replace(policy(Algorithm::SlidingLog, Quota::per_hour(7)), Inherit::Reset).expect("it fits");
    for declared in
        [policy(Algorithm::Gcra, Quota::per_minute(5)), policy(Algorithm::SlidingLog, Quota::per_hour(7))]
    {
        let late = RateLimiter::new(&store, declared).expect("it is the policy of that name");
        assert!(late.is(&first));
        assert_eq!(late.policy().quotas()[0].quota(), Quota::per_hour(7));
    }
    let error = RateLimiter::new(&store, policy(Algorithm::Gcra, Quota::per_minute(6))).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::NameTaken);
    assert!(
        error.to_string().contains("7/h (sliding-log)") && error.to_string().contains("6/min (gcra)"),
        "{error}"
    );
}

#[test]
fn a_store_lists_its_policies_by_name() {
    let (store, _) = store();
    let names = |store: &MemoryStore| -> Vec<String> {
        let store: Arc<dyn Store> = store.into();
        store.limiters().all().iter().map(|limiter| limiter.policy().name().to_owned()).collect()
    };
    let open =
        ["mail", "api", "login"].map(|name| limiter(&store, name, Algorithm::Gcra, Quota::per_minute(5)));
    assert_eq!(names(&store), ["api", "login", "mail"]);
    let shared: Arc<dyn Store> = (&store).into();
    assert!(shared.limiters().get("mail").is_some_and(|found| found.is(&open[0])));
    drop(open);
    assert!(names(&store).is_empty() && shared.limiters().get("mail").is_none());
}

#[test]
fn accounts_are_kept_for_everybody_as_soon_as_somebody_needs_them() {
    let (store, _) = store();
    let plain = limiter(&store, "p", Algorithm::Gcra, Quota::per_minute(5));
    assert!(answer(plain.check("k").cost(3)).is_allowed() && !plain.policy().gives_back());
    let giving = Policy::gcra("p", "5/min").refunds().on(&store).expect("it is the same policy");
    assert!(giving.is(&plain) && plain.policy().gives_back());
    assert_eq!(answer(plain.peek("k")).remaining(), 2, "what was spent stays spent");
    assert!(limiter(&store, "p", Algorithm::Gcra, Quota::per_minute(5)).policy().gives_back());
}

/// A reload lost the accounts that a layer needs, and the receipts of the requests under way with them.
#[test]
fn accounts_that_are_kept_stay_kept_whatever_replaces_the_policy() {
    for inherit in [Inherit::Spent, Inherit::Reset, Inherit::AsIs, Inherit::Proportional, Inherit::Additive] {
        let (store, _) = store();
        let limiter = Policy::gcra("p", "5/min").refunds().on(&store).expect("it fits");
        for quota in ["5/min", "9/min"] {
            limiter
                .replace(Policy::gcra("p", quota).build().expect("it is valid"), inherit)
                .expect("it fits");
            assert!(limiter.policy().gives_back(), "{inherit:?}, {quota}");
        }
    }
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/min").refunds().on(&store).expect("it fits");
    let mut receipt = answer(limiter.check("k").cost(3)).take_receipt(0).expect("it has spent");
    let identical = Policy::gcra("p", "5/min").build().expect("it is valid");
    limiter.replace(identical, Inherit::Spent).expect("it fits");
    assert_eq!(answer(limiter.refund("k", 3).of(&mut receipt)).remaining(), 5);
}

#[test]
fn a_receipt_is_taken_once_and_what_was_given_back_is_gone_from_it() {
    let (store, _) = store();
    let limiter = limiter(
        &store,
        "p",
        Algorithm::FixedWindow(sluicegate_core::algorithm::Anchor::Epoch),
        Quota::per_minute(9),
    );
    let mut decision = answer(limiter.check("k").cost(6));
    assert!(decision.clone().take_receipt(0).is_none(), "a clone has none");
    let mut receipt = decision.take_receipt(0).expect("it has spent");
    assert!(decision.take_receipt(0).is_none() && decision.take_receipt(1).is_none());
    for (give, left) in [(4, 7), (4, 9), (4, 9)] {
        assert_eq!(answer(limiter.refund("k", give).of(&mut receipt)).remaining(), left);
    }
    let _ = answer(limiter.check("k").cost(9));
    assert_eq!(answer(limiter.refund("k", 9).of(&mut receipt)).remaining(), 0, "those are not its own");
    assert!(answer(limiter.peek("other")).take_receipt(0).is_none(), "a look has spent nothing");
    assert!(answer(limiter.check("k")).take_receipt(0).is_none(), "nor has a refusal");
}

/// Seen: one `settle(u64::MAX)` locked a key out for thirty years.
#[test]
fn no_charge_reaches_further_than_ten_bursts() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(10));
        for _ in 0..3 {
            let _ = answer(limiter.charge("k", u64::MAX));
        }
        clock.advance(std::time::Duration::from_secs(11 * 60));
        assert!(answer(limiter.check("k")).is_allowed(), "{algorithm}");
    }
}

/// Seen: a rules file whose policy left and came back was refused while the last limiter of before was being dropped.
#[test]
fn a_name_can_be_put_again_while_another_thread_drops_the_last_limiter_of_it() {
    // To drop a large table takes a while.
    let store = MemoryStore::builder().table_size(200_000).build().expect("there is room");
    let (give, taken) = sync_channel::<RateLimiter>(1);
    let dropping = std::thread::spawn(move || taken.into_iter().for_each(drop));
    for round in 1..=100 {
        let policy = Policy::gcra("p", Quota::per_minute(round)).and("5/s").build().expect("it is valid");
        let put = limiter::replace_all(&store, [policy], |_| Inherit::Spent, |put| Ok(put.to_vec()));
        let limiters = put.unwrap_or_else(|error| panic!("round {round}: {error}"));
        limiters.into_iter().for_each(|limiter| give.send(limiter).expect("it goes on"));
    }
    drop(give);
    dropping.join().expect("dropping does not fail");
}

/// A store in which a name is held for a while by a call that is under way, and which says when it is asked for it.
struct Holding {
    memory: Arc<dyn Store>,
    limiters: Limiters,
    asked: SyncSender<()>,
    is_free: AtomicBool,
}

impl Store for Holding {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        if policy.name() == "held" && !self.is_free.load(Ordering::Acquire) {
            // The test may have heard enough.
            _ = self.asked.try_send(());
            return Err(ConfigError::new(ConfigErrorKind::NameTaken, "a call is under way"));
        }
        self.memory.open(policy, replaces)
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.memory.decide(asks)
    }
}

/// Once the one who waited for the name kept the lock of all limiters for up to a second.
#[test]
fn while_a_name_is_waited_for_others_are_opened_and_found() {
    let (asked, heard) = sync_channel(1);
    let store = Arc::new(Holding {
        memory: MemoryStore::new().into(),
        limiters: Limiters::default(),
        asked,
        is_free: AtomicBool::new(false),
    });
    let waits = {
        let store: Arc<dyn Store> = store.clone();
        std::thread::spawn(move || Policy::gcra("held", "5/min").on(store))
    };
    heard.recv().expect("the name is asked for");
    let other = Policy::gcra("other", "5/min").on(store.clone() as Arc<dyn Store>);
    let other = other.expect("nobody has it");
    assert!(store.limiters().get("other").is_some_and(|found| found.is(&other)));
    // Freed by whoever was behind the lock: with the lock, the other one had given up before.
    store.is_free.store(true, Ordering::Release);
    let held = waits.join().expect("nobody panics").expect("it is free in the end");
    assert_eq!(held.policy().name(), "held");
}

/// Seen: two routes that each had `api` at 2/min answered 200, 200, 429 together, and nothing said why.
#[test]
fn a_name_that_two_lines_open_is_told_once_with_both_of_them_and_clones_are_not() {
    let (store, _) = store();
    let gcra = || Policy::gcra("p", "2/min");
    let (mut first, mut again) = (0, 0);
    let lines = lines_of(|| {
        let limiter = gcra().on(&store).unwrap();
        first = line!() - 1;
        let meant = [limiter.clone(), limiter];
        for _ in 0..2 {
            assert!(gcra().on(&store).unwrap().is(&meant[0]));
            again = line!() - 1;
        }
        assert!(RateLimiter::new(&store, gcra().build().unwrap()).is_ok());
    });
    let [line] = &*lines else { panic!("{lines:?}") };
    let at = |line| format!("{}:{line}:", file!());
    for part in ["DEBUG", "policy=\"p\"", &at(first), &at(again), "clone the limiter", "another name"] {
        assert!(line.contains(part), "{part}: {line}");
    }

    let lines = lines_of(|| {
        let all = |_| gcra().on(&store).unwrap();
        let _shared = (0..3).map(all).collect::<Vec<_>>();
    });
    assert_eq!(lines, [] as [String; 0], "one line in a loop");
    let lines = lines_of(|| {
        let rules = [gcra().build().unwrap()];
        let _ruled = limiter::replace_all(&store, rules, |_| Inherit::Spent, |all| Ok(all.to_vec())).unwrap();
        let _of_code = gcra().on(&store).unwrap();
    });
    assert_eq!(lines, [] as [String; 0], "a file stands in for what code has");
}
