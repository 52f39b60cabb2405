//! Everything else that happens to a key whose refusal is kept.

use std::time::Duration;

use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Key, Outcome, Policy, RateLimiter};
use sluicegate_fleet::DenyCache;
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::broken;
use sluicegate_tests::memory::answer;

use super::Scene;

#[test]
fn a_refused_key_costs_no_call_until_its_retry() {
    let scene = Scene::with(|builder| builder.longest(Duration::from_secs(5)));
    let api = Policy::gcra("api", "1/4s").on(&scene.cache).unwrap();
    assert!(answer(api.check("ada")).is_allowed());
    for ms in [0, 1_000, 2_000, 3_999] {
        scene.clock.set(sluicegate_tests::time::START + Duration::from_millis(ms));
        let refused = answer(api.check("ada"));
        assert_eq!(refused.retry_after(), Some(Duration::from_millis(4_000 - ms)));
        assert_eq!((refused.decided_by(), refused.remaining()), (DecidedBy::Cache, 0));
    }
    assert_eq!(scene.calls(), 1);
    scene.advance_ms(1);
    assert!(answer(api.check("ada")).is_allowed());
}

#[test]
fn a_lower_cost_is_asked_and_a_higher_one_refused_with_a_wait_of_its_own() {
    let scene = Scene::new();
    let api = Policy::gcra("api", "10/s").on(&scene.cache).unwrap();
    assert!(answer(api.check("ada").cost(8)).is_allowed());
    let refused = answer(api.check("ada").cost(4));
    assert_eq!(
        (refused.decided_by(), refused.retry_after()),
        (DecidedBy::Cache, Some(Duration::from_millis(200)))
    );
    let refused = answer(api.check("ada").cost(5));
    assert_eq!(
        (refused.decided_by(), refused.retry_after()),
        (DecidedBy::Cache, Some(Duration::from_millis(300)))
    );
    assert_eq!(answer(api.check("ada").cost(11)).outcome(), Outcome::Impossible);
    assert_eq!(scene.calls(), 1);
    assert!(answer(api.check("ada").cost(2)).is_allowed());
    assert_eq!(scene.calls(), 2);
}

#[test]
fn a_cost_that_never_fits_is_impossible_again_without_a_call() {
    let scene = Scene::new();
    let api = Policy::gcra("api", "10/s").on(&scene.cache).unwrap();
    for _ in 0..3 {
        let never = answer(api.check("ada").cost(11));
        assert_eq!((never.outcome(), never.retry_after()), (Outcome::Impossible, None));
    }
    assert_eq!(scene.calls(), 1);
    assert!(answer(api.check("ada").cost(10)).is_allowed());
}

#[test]
fn what_is_reported_through_it_is_seen_at_once() {
    let scene = Scene::new();
    let api = Policy::gcra("api", "5/h").on(&scene.cache).unwrap();
    let mut receipt = answer(api.check("eve").cost(5)).take_receipt(0).unwrap();
    assert!(!answer(api.check("eve")).is_allowed());
    _ = answer(api.refund("eve", 2).of(&mut receipt));
    assert!(answer(api.check("eve").cost(2)).is_allowed());

    let exhaust = || {
        _ = answer(api.reset("ada"));
        assert!(answer(api.check("ada").cost(5)).is_allowed());
        assert!(!answer(api.check("ada")).is_allowed());
    };
    exhaust();
    _ = answer(api.refund("ada", 1));
    assert!(answer(api.check("ada")).is_allowed());

    exhaust();
    _ = answer(api.charge("ada", 5));
    let denied = answer(api.check("ada"));
    assert_eq!(denied.retry_after().map(|wait| wait.as_secs()), Some(6 * 720), "the debt counts");

    exhaust();
    api.replace(Policy::gcra("api", "7/h").build().unwrap(), Inherit::Spent).unwrap();
    assert!(answer(api.check("ada").cost(2)).is_allowed());
    api.replace(Policy::gcra("api", "5/h").build().unwrap(), Inherit::Reset).unwrap();
    assert!(answer(api.check("ada").cost(5)).is_allowed(), "nothing of the old one is known");

    assert!(!answer(api.check("ada")).is_allowed());
    api.reset_all().unwrap();
    assert!(answer(api.check("ada").cost(5)).is_allowed(), "nor of the time before");
}

#[test]
fn what_another_instance_does_is_seen_after_the_longest_time() {
    let scene = Scene::new();
    let (here, elsewhere) = (
        Policy::gcra("api", "1/h").on(&scene.cache).unwrap(),
        Policy::gcra("api", "1/h").on(&scene.memory).unwrap(),
    );
    assert!(answer(here.check("ada")).is_allowed());
    _ = answer(elsewhere.reset("ada"));
    scene.advance_ms(1_999);
    assert!(!answer(here.check("ada")).is_allowed());
    scene.advance_ms(1);
    assert!(answer(here.check("ada")).is_allowed());
}

#[test]
fn a_request_that_one_limit_refuses_never_reaches_the_store_and_others_are_not_hit() {
    let scene = Scene::new();
    let (address, user) = (
        Policy::gcra("address", "1/min").on(&scene.cache).unwrap(),
        Policy::gcra("user", "9/min").on(&scene.cache).unwrap(),
    );
    let (home, ada) = (Key::from("198.51.100.7"), Key::from("ada"));
    let both = || answer(check_all([user.check(&ada), address.check(&home)]));
    assert!(both().is_allowed());
    let calls = scene.calls();
    for _ in 0..5 {
        let refused = both();
        assert_eq!((refused.outcome(), refused.decided_by()), (Outcome::Denied, DecidedBy::Cache));
        let known: Vec<_> = refused.quotas().iter().map(|status| status.policy_index()).collect();
        assert_eq!(known, [1], "nothing is invented of the other one");
    }
    assert_eq!(scene.calls(), calls);
    assert_eq!(answer(user.peek("ada")).remaining(), 8);
    assert!(answer(user.check("ada")).is_allowed(), "the user is refused nowhere else");
}

#[test]
fn a_policy_with_two_quotas_is_refused_by_each_until_its_own_retry() {
    let scene = Scene::with(|builder| builder.longest(Duration::from_secs(5)));
    let api = Policy::gcra("api", "2/s").and("3/h").on(&scene.cache).unwrap();
    for expected in [true, true, false] {
        assert_eq!(answer(api.check("ada")).is_allowed(), expected);
    }
    scene.advance_ms(500);
    assert!(answer(api.check("ada")).is_allowed());
    let refused = answer(api.check("ada"));
    assert_eq!((refused.decided_by(), refused.capacity()), (DecidedBy::Cache, 3));
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(1_199_500)));
}

#[test]
fn asks_of_one_call_for_one_bucket_say_nothing_about_one_alone() {
    let scene = Scene::new();
    let api = Policy::gcra("api", "5/h").on(&scene.cache).unwrap();
    let ada = Key::from("ada");
    assert!(!answer(check_all([api.check(&ada).cost(3), api.check(&ada).cost(3)])).is_allowed());
    assert!(answer(api.check("ada").cost(3)).is_allowed());
}

#[test]
fn a_turn_that_comes_in_time_is_given_although_a_spend_is_refused() {
    let scene = Scene::new();
    let calls = Policy::gcra("calls", "1/s burst 1").on(&scene.cache).unwrap();
    let reserve = |ms| answer(calls.check("ada").reserve(Duration::from_millis(ms)));
    assert!(answer(calls.check("ada")).is_allowed());
    assert!(!answer(calls.check("ada")).is_allowed());
    assert_eq!(reserve(1_000).delay(), Duration::from_secs(1));
    // The next turn is in two seconds: refused by the store, and then here, for any who would wait as long.
    assert_eq!(reserve(1_000).retry_after(), Some(Duration::from_secs(1)));
    let before = scene.calls();
    assert_eq!(reserve(1_000).retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(reserve(400).retry_after(), Some(Duration::from_millis(1_600)));
    assert_eq!(answer(calls.check("ada")).retry_after(), Some(Duration::from_secs(2)));
    assert_eq!(scene.calls(), before);
    assert_eq!(reserve(2_000).delay(), Duration::from_secs(2));
}

#[test]
fn a_turn_that_is_given_up_ends_the_refusal_of_others() {
    let scene = Scene::new();
    let calls = Policy::gcra("calls", "1/s burst 1").on(&scene.cache).unwrap();
    let reserve = || answer(calls.check("ada").reserve(Duration::from_secs(1)));
    assert!(answer(calls.check("ada")).is_allowed());
    let mut receipt = reserve().take_receipt(0).unwrap();
    assert!(!reserve().is_allowed());
    assert!(answer(calls.refund("ada", 1).of(&mut receipt)).is_allowed());
    assert!(reserve().is_allowed());
}

#[test]
fn as_much_as_there_is_is_refused_when_there_is_nothing() {
    let scene = Scene::new();
    let rows = Policy::gcra("rows", "10/s").on(&scene.cache).unwrap();
    assert_eq!(answer(rows.check("ada").up_to(80)).granted(), Some(10));
    let refused = answer(rows.check("ada").up_to(80));
    assert_eq!(
        (refused.decided_by(), refused.retry_after()),
        (DecidedBy::Cache, Some(Duration::from_millis(100)))
    );
    scene.advance_ms(100);
    assert_eq!(answer(rows.check("ada").up_to(80)).granted(), Some(1));
}

#[test]
fn each_refusal_counts_towards_a_suspension_and_a_released_key_is_free_at_once() {
    let scene = Scene::new();
    let direct = Scene::new();
    let limiters = [&scene, &direct].map(|scene| {
        let builder = Policy::gcra("api", "1/min").suspend(5, "10min", "30min");
        if std::ptr::eq(scene, &direct) { builder.on(&scene.memory) } else { builder.on(&scene.cache) }
            .unwrap()
    });
    let outcomes =
        |limiter: &RateLimiter| (0..9).map(|_| answer(limiter.check("ada")).outcome()).collect::<Vec<_>>();
    let [cached, plain] = limiters.each_ref().map(outcomes);
    assert_eq!(cached, plain);
    assert_eq!(cached[5], Outcome::Suspended);
    _ = tokio_test_block(limiters[0].suspensions().release("ada"));
    scene.clock.advance(Duration::from_secs(60));
    assert!(answer(limiters[0].check("ada")).is_allowed());
}

/// Once such a flood cost a call each.
#[test]
fn a_suspended_key_costs_no_call_while_that_is_known() {
    let scene = Scene::new();
    let policy = || Policy::gcra("api", "1/min").suspend(2, "10min", "30min");
    let (api, elsewhere) = (policy().on(&scene.cache).unwrap(), policy().on(&scene.memory).unwrap());
    let flood = || {
        let calls = scene.calls();
        for _ in 0..100 {
            let suspended = answer(api.check("ada"));
            assert_eq!(suspended.outcome(), Outcome::Suspended, "{suspended:?}");
            assert_eq!((suspended.capacity(), suspended.remaining()), (1, 0));
        }
        scene.calls() - calls
    };
    for expected in [Outcome::Allowed, Outcome::Denied, Outcome::Suspended] {
        assert_eq!(answer(api.check("ada")).outcome(), expected);
    }
    // The next refusal is to be counted, and hears it.
    assert_eq!(flood(), 1);
    scene.advance_ms(2_000);
    // The limit itself would let pass by then: only the suspension is known.
    scene.advance_ms(120_000);
    assert_eq!(flood(), 1);
    assert_eq!(answer(api.check("ada")).retry_after(), Some(Duration::from_secs(30 * 60 - 122)));
    assert!(answer(api.check("eve")).is_allowed());
    _ = tokio_test_block(elsewhere.suspensions().release("ada"));
    assert_eq!(flood(), 0, "another instance has released it");
    scene.advance_ms(2_000);
    assert!(answer(api.check("ada")).is_allowed());
    assert_eq!(
        tokio_test_block(api.suspensions().suspend("ada", Duration::from_secs(600))).unwrap().outcome(),
        Outcome::Suspended
    );
    assert_eq!(flood(), 1);
    _ = tokio_test_block(api.suspensions().release("ada"));
    scene.advance_ms(60_000);
    assert!(answer(api.check("ada")).is_allowed(), "it was released here");
}

fn tokio_test_block<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn a_policy_in_shadow_is_refused_as_before_and_one_that_is_off_is_not_asked() {
    let scene = Scene::new();
    let api = Policy::gcra("api", "1/h").on(&scene.cache).unwrap();
    assert!(answer(api.check("ada")).is_allowed());
    for (mode, passes) in [(PolicyMode::Shadow, false), (PolicyMode::Off, true), (PolicyMode::Enforce, false)]
    {
        api.replace(api.policy().in_mode(mode), Inherit::Spent).unwrap();
        for _ in 0..2 {
            assert_eq!(answer(api.check("ada")).is_allowed(), passes, "{mode}");
        }
    }
}

#[test]
fn refusals_of_an_outage_are_not_kept() {
    let cache = DenyCache::new(Resilient::new(broken(true)));
    let api = Policy::gcra("api", "1/h").on(&cache).unwrap();
    for expected in [true, false, false] {
        let decision = answer(api.check("ada"));
        assert_eq!((decision.is_allowed(), decision.decided_by()), (expected, DecidedBy::Fallback));
    }
    assert_eq!((cache.status().keys, cache.status().refused), (0, 0));
}

/// A refusal that spends has to be told to the store each time; it is the client that shall pause.
#[test]
fn a_policy_that_counts_refused_requests_is_asked_each_time_and_so_is_a_request_it_takes_part_in() {
    let scene = Scene::new();
    let counting = Policy::gcra("counting", "5/min").count_rejected().on(&scene.cache).unwrap();
    let plain = Policy::gcra("plain", "1/min").on(&scene.cache).unwrap();
    let ada = Key::from("ada");
    assert!(answer(counting.check(&ada).cost(5)).is_allowed());
    for _ in 0..3 {
        let refused = answer(counting.check(&ada));
        assert_eq!((refused.is_allowed(), refused.decided_by()), (false, DecidedBy::Store));
    }
    assert_eq!(scene.calls(), 4);
    scene.advance_ms(12_000);
    assert!(!answer(counting.check(&ada).cost(2)).is_allowed(), "it has spent what had come back");
    assert!(!answer(counting.check(&ada)).is_allowed());

    let (eve, calls) = (Key::from("eve"), scene.calls());
    let both = || answer(check_all([plain.check(&eve), counting.check(&eve)]));
    assert!(both().is_allowed() && !both().is_allowed() && !both().is_allowed());
    assert_eq!(scene.calls() - calls, 3, "the refusals of the one count under the other");
}

/// Once known, a key is no newcomer: a reset makes it one, and what the cache had kept of it is gone.
#[test]
fn a_newcomer_is_told_a_wait_after_which_it_passes_and_a_reset_makes_a_newcomer_of_it() {
    let scene = Scene::new();
    let api = Policy::gcra("api", "60/min start 10").on(&scene.cache).unwrap();
    for _ in 0..2 {
        // A look makes nobody known, and its refusal is nobody else's.
        assert!(!answer(api.peek("ada").cost(11)).is_allowed());
        scene.advance_ms(300);
        let refused = answer(api.check("ada").cost(11));
        assert_eq!(
            (refused.retry_after(), refused.decided_by()),
            (Some(Duration::from_secs(1)), DecidedBy::Store)
        );
        assert_eq!(answer(api.check("ada").cost(11)).decided_by(), DecidedBy::Cache);
        scene.advance_ms(1_000);
        assert!(answer(api.check("ada").cost(11)).is_allowed());
        assert!(!answer(api.check("ada")).is_allowed());
        assert_eq!(answer(api.reset("ada")).remaining(), 10);
    }
}
