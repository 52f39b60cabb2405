//! Keys that bring quotas of their own: one policy, one table, and numbers that are data.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_core::algorithm::{Rule, State};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::{Inherit, Overrides, check_all};
use sluicegate_core::policy::{OnFull, Override, PolicyMode, Quotas};
use sluicegate_core::{Algorithm, Policy, Quota, RateLimiter};
use sluicegate_observed::Observed;
use sluicegate_tests::memory::store_for;

use crate::support::{ALL, answer, limiter, secs, store};

fn passes(limiter: &RateLimiter, key: &str) -> bool {
    answer(limiter.check(key)).is_allowed()
}

fn with(limiter: &RateLimiter, quota: Quota) -> RateLimiter {
    limiter.with_quotas(quota).expect("the algorithm can keep it")
}

/// Seen: with a policy per customer, of which 100 were kept open, 2,990 of the second 3,000 requests of 300 customers passed.
#[test]
fn customers_with_numbers_of_their_own_are_held_to_them_however_many_they_are() {
    for algorithm in ALL {
        let (store, _) = store_for(4_096, 1 << 20);
        let api = limiter(&store, "api", algorithm, Quota::per_hour(1));
        let mut passed = HashMap::new();
        for customer in (0..2).flat_map(|_| 1..=300_u64) {
            let own = with(&api, Quota::per_hour(3 + customer % 7));
            let count = (0..10).filter(|_| passes(&own, &format!("customer-{customer}"))).count() as u64;
            *passed.entry(customer).or_insert(0) += count;
        }
        let wrong: Vec<_> =
            passed.iter().filter(|(customer, passed)| **passed != 3 + *customer % 7).collect();
        // A queue lets go of one at once, and of the rest in time.
        assert!(wrong.is_empty() || crate::support::is_queue(algorithm), "{algorithm}: {wrong:?}");
        assert_eq!(store.stats().evictions, 0);
    }
}

/// Seen: one name for all, replaced for each customer, let 11 and 18 of 10 pass when two threads asked.
#[test]
fn threads_that_bring_different_quotas_never_pass_more_than_each_key_has() {
    const THREADS: usize = 8;
    for (algorithm, customers, rounds) in [
        (Algorithm::Gcra, 100_000, 1),
        (Algorithm::SlidingLog, 2_000, 20),
        (Algorithm::SlidingCounter, 2_000, 20),
    ] {
        let (store, _) = store_for(customers * 16, 1 << 20);
        let api = limiter(&store, "api", algorithm, Quota::per_hour(1));
        let passed: Vec<_> = (0..customers).map(|_| AtomicU64::new(0)).collect();
        let limit =
            |customer: usize| 1 + customer as u64 % if algorithm == Algorithm::Gcra { 5 } else { 100 };
        // A thousand different ones, where the limit is a burst.
        let quota = |customer: usize| match algorithm {
            Algorithm::Gcra => Quota::per_hour(1_000 + customer as u64 % 1_000).burst(limit(customer)),
            _ => Quota::per_hour(limit(customer)),
        };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (api, passed) = (&api, &passed);
                scope.spawn(move || {
                    for step in 0..customers * rounds {
                        // Another order in each thread.
                        let customer = (step * (2 * thread + 1) * 7_919 + thread) % customers;
                        let own = with(api, quota(customer));
                        if passes(&own, &customer.to_string()) {
                            passed[customer].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let asked = (THREADS * rounds) as u64;
        let is_wrong = |&(customer, passed): &(usize, &AtomicU64)| {
            passed.load(Ordering::Relaxed) != limit(customer).min(asked)
        };
        let wrong: Vec<_> = passed.iter().enumerate().filter(is_wrong).collect();
        // In a table this large, a set is full now and then: a key that made room begins anew.
        let made_room = store.stats().evictions;
        assert!(wrong.len() as u64 <= made_room && made_room < 200, "{algorithm}: {made_room}, {wrong:?}");
    }
}

/// A table is made when a request first asks, for all that was said by then.
#[test]
fn a_policy_that_takes_quotas_before_anybody_asks_has_one_table() {
    for algorithm in ALL {
        let (store, _) = store_for(1_000, 1 << 20);
        let api = limiter(&store, "api", algorithm, Quota::per_hour(10));
        api.remember(Policy::with_refunds).unwrap();
        let own = with(&api, Quota::per_hour(20));
        assert!(store.stats().slots < 3_500, "{algorithm}: {:?}", store.stats());
        assert!(passes(&own, "ada") && passes(&api, "bob"));
        let before = answer(own.peek("carol")).remaining();
        let mut receipt = answer(own.check("carol")).take_receipt(0).expect("accounts are kept");
        let _ = answer(own.refund("carol", 1).of(&mut receipt));
        assert_eq!(answer(own.peek("carol")).remaining(), before, "{algorithm}");
    }
}

/// Seen: a key that was at rest spent by the policy's quota, and kept the units as those of its former plan: 7 of 10 passed after one of 40.
#[test]
fn a_key_that_was_at_rest_is_counted_by_the_quota_of_the_policy_again() {
    for algorithm in ALL.into_iter().filter(|algorithm| !crate::support::is_queue(*algorithm)) {
        for (own, at_once) in [(3, 1), (3, 10), (40, 1)] {
            let (store, clock) = store();
            // As a file of rules opens it: nothing is replaced when the first quotas come.
            let policy = Policy::builder("api", algorithm, "10/h").build().unwrap().taking_quotas();
            let api = RateLimiter::new(&store, policy).unwrap();
            assert!(passes(&with(&api, Quota::per_hour(own)), "ada"));
            clock.advance(secs(3 * 86_400));
            assert!(answer(api.check("ada").cost(at_once)).is_allowed());
            let more = (0..40).filter(|_| passes(&api, "ada")).count() as u64;
            assert_eq!(at_once + more, 10, "{algorithm} after {own} an hour");
        }
    }
}

/// A log that is asked by a shorter period in between keeps what the longer one counts.
#[test]
fn a_shorter_period_in_between_frees_nothing_of_a_longer_one() {
    let (store, clock) = store();
    let api = limiter(&store, "api", Algorithm::SlidingLog, Quota::per_hour(10));
    let fast = with(&api, Quota::per_minute(1_000));
    assert!(answer(api.check("ada").cost(10)).is_allowed());
    clock.advance(secs(300));
    assert!(passes(&fast, "ada"));
    assert_eq!(answer(fast.peek("ada")).remaining(), 999);
    assert!(!passes(&api, "ada"), "the ten are of the last hour");
    clock.advance(secs(3_299));
    assert!(passes(&fast, "ada") && !passes(&api, "ada"));
    clock.advance(secs(2));
    assert_eq!(answer(api.peek("ada")).remaining(), 8, "ten are over, two are not");
}

#[test]
fn all_that_a_limiter_does_is_done_by_the_quotas_of_the_key() {
    let (store, clock) = store();
    let api = Policy::gcra("api", "1/min").refunds().on(&store).unwrap();
    let own = api.with_quotas("60/min burst 5").unwrap();
    assert_eq!(own.policy().quotas()[0].quota(), Quota::per_minute(60).burst(5));
    assert_eq!(answer(own.charge("ada", 7)).remaining(), 0);
    assert_eq!(answer(own.check("ada")).retry_after(), Some(secs(3)), "two units of debt, and its own");
    assert_eq!(answer(own.check("ada").reserve(secs(9))).delay(), secs(3));
    clock.advance(secs(60));

    let mut spent = answer(own.check("ada").cost(4));
    let mut receipt = spent.take_receipt(0).unwrap();
    // The plan changes in the middle: what is given back is counted by what the key was counted by.
    let other = api.with_quotas("600/min burst 50").unwrap();
    assert_eq!(answer(other.refund("ada", 2).of(&mut receipt)).remaining(), 3);
    assert_eq!(answer(own.peek("ada")).remaining(), 3);
    // A spend under the new plan begins another bucket, of which the old receipt knows nothing.
    assert!(passes(&other, "ada"));
    let before = answer(other.peek("ada")).remaining();
    let _ = answer(other.refund("ada", 2).of(&mut receipt));
    assert_eq!(answer(other.peek("ada")).remaining(), before);

    let decisions = ["x", "x", "y"].map(|key| answer(own.check(key).cost(3)).is_allowed());
    assert_eq!(decisions, [true, false, true]);
    let all = check_all([own.check("x").cost(2), api.check("y")]);
    assert!(!answer(all).is_allowed(), "the policy's one is spent by the three of before");
    assert_eq!(answer(own.check("x").up_to(9)).granted(), Some(2), "and nothing was spent with it");
    let _ = answer(own.reset("x"));
    assert_eq!(answer(own.peek("x")).remaining(), 5);
}

#[test]
fn a_replacement_an_override_and_a_mode_reach_limiters_with_quotas() {
    let (store, clock) = store();
    let api = limiter(&store, "api", Algorithm::Gcra, Quota::per_hour(10));
    let own = with(&api, Quota::per_hour(4));
    assert!(answer(own.check("ada").cost(3)).is_allowed());
    api.replace(Policy::sliding_log("api", "7/h").build().unwrap(), Inherit::Spent).unwrap();
    let left = |limiter: &RateLimiter| answer(limiter.peek("ada")).remaining();
    assert_eq!((left(&own), left(&api), left(&with(&api, Quota::per_hour(9)))), (1, 4, 6));
    assert_eq!(own.policy().to_string(), "api: 4/h (sliding-log)");
    assert!(passes(&own, "ada") && !passes(&own, "ada"));
    // A policy that cannot have them decides by its own.
    api.replace(Policy::sliding_log("api", "7/h").and("9/d").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(answer(own.peek("bob")).capacity(), 7);
    let two = api.with_quotas("3/h, 5/d").unwrap();
    api.replace(two.own_policy().in_mode(PolicyMode::Off), Inherit::Spent).unwrap();
    assert!((0..20).all(|_| passes(&two, "bob")), "it is off");
    clock.advance(secs(1));
}

/// Quotas remember what the first limiter has made of them.
#[test]
fn one_value_of_quotas_serves_several_policies_and_each_replacement_of_one() {
    let (store, _) = store();
    let quotas: Quotas = "4/h".parse().unwrap();
    let [api, login] =
        ["api", "login"].map(|name| limiter(&store, name, Algorithm::Gcra, Quota::per_hour(9)));
    let left = |limiter: &RateLimiter| answer(limiter.with_quotas(&quotas).unwrap().check("ada")).remaining();
    assert_eq!([left(&api), left(&login), left(&api), left(&login)], [3, 3, 2, 2]);
    api.replace(Policy::sliding_log("api", "9/h").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(api.with_quotas(&quotas).unwrap().policy().to_string(), "api: 4/h (sliding-log)");
    assert_eq!([left(&api), left(&login)], [1, 1]);
    drop(api);
    let api = limiter(&store, "api", Algorithm::Gcra, Quota::per_hour(9));
    assert_eq!([left(&api), left(&login)], [3, 0]);
}

/// An override of one key, or of the mode, concerns all limiters of the policy; they are not made anew for each request.
#[tokio::test]
async fn a_limiter_of_quotas_is_found_again_while_overrides_stand_and_after_them() {
    let (store, clock) = store();
    let quotas: Quotas = "4/h".parse().unwrap();
    let api = limiter(&store, "api", Algorithm::Gcra, Quota::per_hour(9));
    let own = || api.with_quotas(&quotas).unwrap();
    let left = |limiter: &RateLimiter| answer(limiter.check("ada")).remaining();
    assert!(own() == own());
    assert_eq!(left(&own()), 3);
    let hour = Duration::from_secs(3_600);
    clock.advance(2 * hour);
    for over in [
        Override::builder("api", "ops").mode(PolicyMode::Shadow).lasting(hour),
        Override::builder("api", "ops").key("other").quota("20/h").lasting(hour),
    ] {
        Overrides::of(&store).put(over).await.unwrap();
        let under = own();
        assert!(under == own());
        assert_eq!(left(&under), 3);
        clock.advance(2 * hour);
        assert_eq!((left(&under), left(&own())), (3, 2), "it is over");
        assert!(own() == own());
        clock.advance(2 * hour);
    }
    api.replace(Policy::gcra("api", "8/h").build().unwrap(), Inherit::Spent).unwrap();
    assert!(own() == own());
}

/// A check under quotas is the check of a limiter with these quotas: through replacements, rules, overrides, and beside other checks.
#[tokio::test]
async fn quotas_that_come_with_a_check_decide_as_those_of_a_limiter() {
    let (store, clock) = store();
    let quotas: Quotas = "4/h".parse().unwrap();
    let api = limiter(&store, "api", Algorithm::Gcra, Quota::per_hour(9));
    let check = |limiter: &RateLimiter| answer(limiter.check("ada").under(&quotas).unwrap());
    let peeked = || {
        let under = answer(api.peek("ada").under(&quotas).unwrap());
        assert_eq!(under.quotas(), answer(api.with_quotas(&quotas).unwrap().peek("ada")).quotas());
        (under.capacity(), under.remaining())
    };
    assert!(check(&api).is_allowed());
    assert_eq!(peeked(), (4, 3));
    assert!(answer(api.check("ada").cost(2).under(&quotas).unwrap()).is_allowed());
    assert_eq!(peeked(), (4, 1));
    let both = check_all([api.check("ada").under(&quotas).unwrap().cost(2), api.check("bob")]);
    assert_eq!(answer(both).capacity(), 4, "the quota of the check refuses");
    assert_eq!(answer(api.peek("bob")).remaining(), 9, "and nothing was spent beside it");
    let turn = api.check("ada").under(&quotas).unwrap().acquire(secs(0)).await.unwrap();
    assert_eq!((turn.capacity(), turn.remaining()), (4, 0));
    // A limiter with other quotas, under these.
    let other = api.with_quotas("7/h").unwrap();
    assert_eq!((check(&other).capacity(), answer(other.peek("ada")).capacity()), (4, 7));
    clock.advance(secs(7_200));

    api.replace(Policy::sliding_log("api", "8/h").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(check(&api).capacity(), 4);
    assert_eq!(peeked(), (4, 3));
    let over = Override::builder("api", "ops").key("ada").quota("20/h").lasting(secs(60));
    Overrides::of(&store).put(over).await.unwrap();
    assert_eq!(check(&api).capacity(), 20, "the override of the key takes precedence");
    clock.advance(secs(60));
    assert_eq!(check(&api).capacity(), 4);
    // A policy that cannot have them says so, and asks nothing.
    api.replace(Policy::sliding_log("api", "7/h").and("9/d").build().unwrap(), Inherit::Spent).unwrap();
    assert!(api.check("eve").under(&quotas).is_err());
    assert_eq!(answer(api.peek("eve")).remaining(), 7);
}

/// Quotas remember one place; those that have none, or another one, are found by their numbers.
#[test]
fn quotas_without_a_place_of_their_own_decide_alike() {
    let (store, _) = store_for(200, 64);
    let [api, login] =
        ["api", "login"].map(|name| limiter(&store, name, Algorithm::Gcra, Quota::per_hour(1)));
    let quota = |number: u64| Quota::new(1 + number, Duration::from_secs(3_600)).burst(1 + number % 5);
    let quotas: Vec<Quotas> = (0..8_300).map(|number| quota(number).into()).collect();
    for _ in 0..2 {
        for (number, quotas) in (0..).zip(&quotas) {
            for limiter in [&api, &login] {
                let decision = answer(limiter.peek("ada").under(quotas).unwrap());
                assert_eq!(decision.capacity(), 1 + number % 5);
            }
            // Equal quotas, read anew.
            assert_eq!(answer(with(&api, quota(number)).peek("ada")).capacity(), 1 + number % 5);
        }
    }
}

#[test]
fn quotas_that_a_policy_cannot_have_are_refused_with_the_reason() {
    let (store, _) = store();
    let api = Policy::gcra("api", "10/h").and("100/d").named("day").on(&store).unwrap();
    let message = |quotas: &str| api.with_quotas(quotas).map(drop).unwrap_err().to_string();
    assert!(message("5/h").contains("1 quotas (5/h), and the policy has 2"), "{}", message("5/h"));
    assert!(message("week: 5/h").contains("\"week\"") && message("week: 5/h").contains("[\"day\"]"));
    assert!(message("5/h, 5/fortnight").contains("fortnight"));
    let log = Policy::sliding_log("log", "10/h").on(&store).unwrap();
    let error = log.with_quotas("5/h burst 9").map(drop).unwrap_err();
    assert_eq!((error.kind(), error.policy()), (ConfigErrorKind::Burst, Some("log")));
    let error = log.with_quotas("900000/h").map(drop).unwrap_err();
    assert!(error.to_string().contains("a log of 900000 entries"), "{error}");
    assert_eq!("day: 5/h, 7/min burst 3".parse::<Quotas>().unwrap().to_string(), "day: 5/h, 7/min burst 3");
}

#[test]
fn as_many_different_quotas_as_fit_and_one_more() {
    let (store, clock) = store();
    let store = Observed::named("exhausted", store).unwrap();
    let api = Policy::gcra("api", "10/h").table_size(500_000).on(&store).unwrap();
    let quota = |number: u64| Quota::new(1, Duration::from_secs(3_600 + number)).burst(1);
    for number in 0..65_535 {
        assert!(answer(with(&api, quota(number)).check(number)).is_allowed());
    }
    let error = api.with_quotas(quota(65_535)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::QuotasExhausted);
    assert!(error.to_string().contains("65535 different ones"), "{error}");
    let shown = || {
        let policy = store.snapshot().policies.remove(0);
        (policy.key_quotas, policy.key_quotas_refused)
    };
    assert_eq!(shown(), (65_535, 1));
    let first = with(&api, quota(0));
    assert!(passes(&first, "ada") && !passes(&first, "ada"), "those that are there go on");
    // Those by which no key is counted any more make room.
    clock.advance(secs(200_000));
    assert!(passes(&with(&api, quota(70_000)), "bob"));
    // Those that were brought lately are kept at hand.
    assert!(shown().0 < 20_000, "{:?}", shown());
}

#[test]
fn in_a_full_table_a_key_makes_room_that_has_used_a_smaller_part_of_its_own_quota() {
    for on_full in [OnFull::Forget, OnFull::Inherit] {
        let (store, _) = store_for(2, 64);
        let api = Policy::gcra("api", "100/h").on_full(on_full).on(&store).unwrap();
        let large = with(&api, Quota::per_hour(1_000_000));
        assert!(answer(api.check("debtor").cost(100)).is_allowed());
        for flood in 0..500 {
            assert!(
                answer(large.check(format!("{flood}")).cost(50)).is_allowed() || on_full == OnFull::Inherit
            );
        }
        assert!(!passes(&api, "debtor"), "{on_full:?}: fifty of a million are less than all of a hundred");
    }
}

proptest! {
    /// However often a key changes its quotas at one instant, it gains nothing, and each change costs it at most one part.
    #[test]
    fn a_change_of_quotas_gives_nothing_and_costs_at_most_a_part(
        (algorithm, limits, periods) in (0..ALL.len(), (1..5_000_u64, 1..5_000_u64), (1..100_000_u64, 1..100_000_u64)),
        (spends, changes) in (prop::collection::vec((0..50_000_u64, 1..300_u64), 1..6), 1..12_usize),
    ) {
        let algorithm = ALL[algorithm];
        let rule = |limit, period_ms| Rule::new(algorithm, Quota::new(limit, Duration::from_millis(period_ms)));
        let rules = [rule(limits.0, periods.0), rule(limits.1, periods.1)];
        if let [Ok(one), Ok(other)] = rules && one.log().is_none() {
            let (mut state, mut now_us) = (State::REST, 1_000_000_000);
            for (wait_us, cost) in spends {
                now_us += wait_us;
                state = one.spend(state, now_us, now_us, cost);
            }
            // As exact fractions of a unit: used, and what a part is.
            let used = |rule: &Rule, state| {
                let available = rule.available(state, now_us);
                (available.missing_of(rule.capacity()), available)
            };
            let (mut before, mut counted_by) = (used(&one, state).0, one);
            for change in 0..changes {
                let next = if change % 2 == 0 { other } else { one };
                state = next.converted(&counted_by, state, now_us);
                let after = used(&next, state).0;
                prop_assert!(after >= before, "{algorithm}: {before} units became {after}");
                prop_assert!(after <= before + 1, "{algorithm}: {before} units became {after}");
                (before, counted_by) = (before.max(after), next);
            }
        }
    }
}

/// Seen: a log forgot a turn that had not come when a shorter period took its place, and let as many pass again.
#[test]
fn a_turn_that_is_out_counts_for_its_whole_period_after_a_shorter_one_took_its_place() {
    let (store, clock) = store();
    let api = limiter(&store, "api", Algorithm::SlidingLog, Quota::new(10, secs(10)));
    let short = with(&api, Quota::per_second(100));
    assert!(answer(api.check("k").cost(10)).is_allowed());
    assert_eq!(answer(api.check("k").cost(10).reserve(secs(20))).delay(), secs(10));
    clock.advance(secs(1));
    assert!(answer(short.check("k")).is_allowed());
    clock.advance(secs(14)); // five seconds after the turn
    assert!(!passes(&api, "k"));
    clock.advance(secs(5));
    assert!(passes(&api, "k"));
}
