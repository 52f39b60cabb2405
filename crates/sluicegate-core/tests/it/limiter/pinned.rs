//! Policies that are replaced together with something else: limiters that are pinned keep those that they were made with.

use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::limiter::{self, Inherit, Overrides};
use sluicegate_core::limiter::{change_all, check_all};
use sluicegate_core::policy::Override;
use sluicegate_core::{Key, MemoryStore, Policy, RateLimiter, Store};

use crate::support::{answer, store};

fn policies<const N: usize>(quotas: [(&str, &str); N]) -> [Policy; N] {
    quotas.map(|(name, quota)| Policy::gcra(name, quota).build().expect("the policy is good"))
}

fn pinned<const N: usize>(store: &MemoryStore, quotas: [(&str, &str); N]) -> Vec<RateLimiter> {
    let put = limiter::replace_all(store, policies(quotas), Inherit::Spent, |all| Ok(all.to_vec()));
    put.expect("memory keeps it")
}

fn capacities(limiters: &[RateLimiter]) -> Vec<u64> {
    let keys: Vec<_> = limiters.iter().map(|_| Key::from("k")).collect();
    let decided = check_all(limiters.iter().zip(&keys).map(|(limiter, key)| limiter.check(key)));
    answer(decided).quotas().iter().map(|status| status.capacity()).collect()
}

#[test]
fn pinned_limiters_decide_by_their_own_policies_before_and_after_others_take_effect() {
    let (store, _) = store();
    let code = Policy::gcra("a", "7/min").on(&store).expect("memory keeps it");
    let old = pinned(&store, [("a", "10/min"), ("b", "20/min")]);
    assert_eq!(capacities(&old), [10, 20]);
    let swapped = limiter::replace_all(
        &store,
        policies([("a", "30/min"), ("b", "40/min"), ("c", "50/min")]),
        Inherit::Spent,
        |new| {
            assert_eq!(code.policy().to_string(), "a: 10/min (gcra)", "it is not in force for others yet");
            assert_eq!(capacities(&old), [10, 20]);
            assert_eq!(new[0].own_policy().to_string(), "a: 30/min (gcra)");
            Ok(new.to_vec())
        },
    );
    let new = swapped.expect("memory keeps it");
    assert_eq!(code.policy().to_string(), "a: 30/min (gcra)");
    assert_eq!((capacities(&old), capacities(&new)), (vec![10, 20], vec![30, 40, 50]));
    assert!(old[0].is(&new[0]) && code.is(&new[0]));
}

#[test]
fn who_spends_under_both_policies_in_turn_gets_no_more_than_the_larger_one_allows() {
    for algorithm in crate::support::ALL {
        let (store, _) = store();
        let put = |quota: &str| {
            let policy = Policy::builder("a", algorithm, quota).build().expect("the policy is good");
            let put = limiter::replace_all(&store, [policy], Inherit::Spent, |all| Ok(all[0].clone()));
            put.expect("memory keeps it")
        };
        let mut limiters = vec![put("6/h")];
        let mut passed = 0;
        for quota in ["8/h", "6/h", "8/h", "5/h"] {
            limiters.push(put(quota));
            // Those who began before the last change, and those who begin now.
            for limiter in limiters.iter().rev().take(2).chain(limiters.iter().rev().take(2)) {
                passed += usize::from(answer(limiter.check("k")).is_allowed());
            }
        }
        assert_eq!(passed, 8, "{algorithm}");
    }
}

#[test]
fn when_what_stands_on_them_cannot_be_built_no_policy_takes_effect() {
    let (store, _) = store();
    let old = pinned(&store, [("a", "10/min")]);
    let failed =
        limiter::replace_all(&store, policies([("a", "30/min"), ("b", "40/min")]), Inherit::Spent, |_| {
            Err::<(), _>(ConfigError::new(ConfigErrorKind::Layer, "no"))
        });
    assert_eq!(failed.map_err(|error| error.to_string()), Err("no".into()));
    assert_eq!(capacities(&old), [10]);
    let shared = Policy::gcra("a", "10/min").on(&store).expect("it is open");
    assert_eq!(shared.policy().to_string(), "a: 10/min (gcra)");
    assert!(Policy::gcra("b", "1/min").on(&store).is_ok(), "the name is free");
}

#[test]
fn a_key_that_spent_under_both_policies_has_spent_all_of_it() {
    let (store, _) = store();
    let old = pinned(&store, [("a", "10/min")]);
    let spend = |limiter: &RateLimiter, cost| answer(limiter.check("k").cost(cost)).is_allowed();
    assert!(spend(&old[0], 4));
    let new = pinned(&store, [("a", "12/min")]);
    assert!(spend(&old[0], 3), "it is under way, and has room");
    assert_eq!(answer(new[0].peek("k")).remaining(), 5);
    assert!(spend(&new[0], 5) && !spend(&new[0], 1));
}

#[test]
fn a_charge_by_a_pinned_limiter_goes_to_where_the_key_is_by_then() {
    let (store, _) = store();
    let old = pinned(&store, [("a", "10/min")]);
    let _ = answer(old[0].check("k").cost(4));
    let new = pinned(&store, [("a", "12/min")]);
    let key = Key::from("k");
    let charged = answer(change_all([old[0].charge(&key, 3)]));
    assert_eq!((charged.capacity(), charged.remaining()), (12, 5));
    assert_eq!(answer(new[0].peek("k")).remaining(), 5);
}

#[tokio::test]
async fn overrides_and_replacements_by_code_are_for_pinned_limiters_too() {
    let (store, _) = store();
    let pinned = pinned(&store, [("a", "10/min")]);
    let overrides = Overrides::of(&store);
    let put = overrides.put(Override::builder("a", "ada").quota("3/min")).await.expect("it can be put");
    assert_eq!(capacities(&pinned), [3]);
    overrides.withdraw("a", put.version(), "ada").await.expect("it stands");
    assert_eq!(capacities(&pinned), [10]);
    let store: std::sync::Arc<dyn Store> = (&store).into();
    let code = store.limiters().get("a").expect("it is open");
    code.replace(policies([("a", "8/min")])[0].clone(), Inherit::Spent).expect("memory keeps it");
    assert_eq!(capacities(&pinned), [8]);
}

#[tokio::test]
async fn an_override_that_stands_when_policies_are_put_ends_by_its_time() {
    let (store, clock) = store();
    let _old = pinned(&store, [("a", "10/min")]);
    let lasting = Override::builder("a", "ada").quota("3/min").lasting(crate::support::secs(60));
    Overrides::of(&store).put(lasting).await.expect("it can be put");
    let new = pinned(&store, [("a", "20/min")]);
    assert_eq!(capacities(&new), [3]);
    clock.advance(crate::support::secs(61));
    assert_eq!(capacities(&new), [20]);
}
