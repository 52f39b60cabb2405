//! A flood of new keys: debtors of another policy never make room for it, nor do those of the same one that owe more.

use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, MemoryStore, Policy, Quota, RateLimiter};

use crate::support::{ALL, answer, limiter, secs, store, store_for, us};

/// How many of these keys have their bucket back.
fn forgotten(limiter: &RateLimiter, victims: std::ops::Range<u64>) -> usize {
    victims.filter(|key| answer(limiter.peek(*key)).is_allowed()).count()
}

/// States of one word were ranked by their time to rest across policies: one request of 1000/d outranked a spent 5/min, and
/// socket floods over `1/d` gave most victims their bucket back.
#[test]
fn debtors_survive_any_flood_on_any_other_policy() {
    for (victim, flooded) in ALL.into_iter().flat_map(|victim| ALL.map(|flooded| (victim, flooded))) {
        // In a store for a hundred, the ten debtors once in a while fill a set, and one makes room.
        let (store, clock) = store_for(400, 6_400);
        let short = limiter(&store, "short", victim, Quota::per_minute(5));
        let long = limiter(&store, "long", flooded, Quota::per_day(5));
        for key in 0..10_u64 {
            let _ = answer(short.check(key).cost(5));
        }
        for key in 0..2_000_u64 {
            clock.advance(us(1));
            let _ = answer(long.charge(key, 5));
        }
        assert_eq!(forgotten(&short, 0..10), 0, "{victim} beside {flooded}");
        let stats = store.stats();
        assert!(stats.evictions > 0 && stats.keys <= stats.slots, "{stats:?}");
    }
}

#[test]
fn debtors_survive_a_flood_of_keys_that_use_a_smaller_part_of_the_same_policy() {
    for algorithm in ALL {
        let (store, clock) = store_for(1_000, 16_000);
        let limiter = limiter(&store, "p", algorithm, Quota::per_hour(5));
        for key in 0..20_u64 {
            let _ = answer(limiter.check(key).cost(5));
        }
        for key in 1_000..20_000_u64 {
            clock.advance(us(1));
            let _ = answer(limiter.check(key).cost(1 + key % 3));
        }
        assert_eq!(forgotten(&limiter, 0..20), 0, "{algorithm}");
    }
}

/// README's own "5/min and 2/10s" lost its debtors to one request of another key: the flood's longer quota outranked them.
#[test]
fn two_quotas_of_one_policy_do_not_wash_each_other_away() {
    for algorithm in [Algorithm::Gcra, Algorithm::SlidingCounter] {
        let (store, clock) = store_for(1_000, 16_000);
        let policy = Policy::builder("p", algorithm, "100/d").and("2/10s").on(&store).expect("it fits");
        for key in 0..20_u64 {
            let _ = answer(policy.check(key).cost(2));
        }
        for key in 1_000..20_000_u64 {
            clock.advance(us(1));
            let _ = answer(policy.check(key));
        }
        assert_eq!(forgotten(&policy, 0..20), 0, "{algorithm}");
    }
}

/// The log chose among 16 neighbours, and forgot 138 of 1,000 debtors.
#[test]
fn a_log_forgets_no_more_debtors_than_a_random_sample_must() {
    let (store, _) = store_for(2_000, 100_000);
    let limiter = limiter(&store, "p", Algorithm::SlidingLog, Quota::per_hour(10));
    for key in 0..1_000_u64 {
        let _ = answer(limiter.check(key).cost(10));
    }
    for key in 10_000..30_000_u64 {
        let _ = answer(limiter.check(key));
    }
    // One of 16 that are drawn owes less, but for one in some 65,000 evictions; shards differ a little.
    let forgotten = forgotten(&limiter, 0..1_000);
    assert!(forgotten <= 12, "{forgotten} of 1,000");
    assert!(store.stats().evictions > 15_000);
}

#[test]
fn a_policy_has_the_capacity_that_it_says() {
    let (store, _) = store_for(1_000, 16_000);
    let slots = |store: &MemoryStore| store.stats().slots;
    let own = Policy::gcra("own", "5/min").table_size(100).on(&store).expect("it fits");
    assert!((187..200).contains(&slots(&store)));
    let _other = limiter(&store, "other", Algorithm::Gcra, Quota::per_minute(5));
    assert!((2_050..2_100).contains(&slots(&store)));
    let two = Policy::gcra("two", "5/min").and("9/h").table_size(10).on(&store).expect("it fits");
    assert!((2_080..2_150).contains(&slots(&store)));
    drop((own, two));
    assert!((1_870..1_900).contains(&slots(&store)), "what nobody uses any more takes no room");
    for keys in [0, usize::MAX] {
        let error = Policy::gcra("none", "5/min").table_size(keys).build().expect_err("no such table");
        let message = format!("policy \"none\": it cannot have room for {keys} keys: use 1 to 2147483648");
        assert_eq!(error.to_string(), message);
    }
}

/// Each request of such a policy once panicked, because its table was only made then.
#[test]
fn a_table_for_which_there_is_no_memory_is_an_error_when_its_policy_is_opened() {
    for algorithm in [Algorithm::Gcra, Algorithm::FixedWindow(sluicegate_core::algorithm::Anchor::Epoch)] {
        let store = MemoryStore::new();
        let good = Policy::builder("p", algorithm, "5/min").on(&store).expect("it fits");
        let huge = Policy::builder("p", algorithm, "6/min").table_size(1 << 31);
        // A machine may have so much memory.
        match good.replace(huge.build().expect("it is good"), Inherit::Spent) {
            Ok(()) => {}
            Err(error) => assert_eq!(
                error.to_string(),
                "policy \"p\": there is no memory for a table of 2147483648 keys: use a smaller table size"
            ),
        }
        assert!(answer(good.check("ada")).is_allowed(), "{algorithm}");
    }
}

/// That of the first policy stays as long as its handle, which asks it until it is replaced.
#[test]
fn the_table_of_a_replaced_policy_lives_until_its_keys_are_over() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(5));
        let before = store.stats();
        let replace = |quota| {
            let policy = Policy::builder("p", algorithm, quota).build().expect("the policy is good");
            limiter.replace(policy, Inherit::Spent).expect("it fits");
        };
        replace("7/min");
        let _ = answer(limiter.check("k").cost(5));
        replace("9/min");
        assert_eq!((store.stats().keys, store.stats().slots), (1, 3 * before.slots), "{algorithm}");
        clock.advance(secs(121));
        let _ = answer(limiter.check("another"));
        assert_eq!((store.stats().keys, store.stats().slots), (1, 2 * before.slots), "{algorithm}");
    }
}
