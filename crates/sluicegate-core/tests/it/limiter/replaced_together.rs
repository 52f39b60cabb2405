//! Policies that are replaced together with something else, such as the rules that name them.

use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::limiter::check_all;
use sluicegate_core::limiter::{self, Inherit, Overrides};
use sluicegate_core::policy::Override;
use sluicegate_core::{Key, MemoryStore, Policy, RateLimiter, Store};

use crate::support::{answer, store};

fn policies<const N: usize>(quotas: [(&str, &str); N]) -> [Policy; N] {
    quotas.map(|(name, quota)| Policy::gcra(name, quota).build().expect("the policy is good"))
}

fn put<const N: usize>(store: &MemoryStore, quotas: [(&str, &str); N]) -> Vec<RateLimiter> {
    let put = limiter::replace_all(store, policies(quotas), |_| Inherit::Spent, |all| Ok(all.to_vec()));
    put.expect("memory keeps it")
}

fn capacities(limiters: &[RateLimiter]) -> Vec<u64> {
    let keys: Vec<_> = limiters.iter().map(|_| Key::from("k")).collect();
    let decided = check_all(limiters.iter().zip(&keys).map(|(limiter, key)| limiter.check(key)));
    answer(decided).quotas().iter().map(|status| status.capacity()).collect()
}

#[test]
fn limiters_have_their_policies_before_these_take_effect_for_others() {
    let (store, _) = store();
    let code = Policy::gcra("a", "7/min").on(&store).expect("memory keeps it");
    let old = put(&store, [("a", "10/min"), ("b", "20/min")]);
    assert_eq!(capacities(&old), [10, 20]);
    let swapped = limiter::replace_all(
        &store,
        policies([("a", "30/min"), ("b", "40/min"), ("c", "50/min")]),
        |_| Inherit::Spent,
        |new| {
            assert_eq!(code.policy().to_string(), "a: 10/min (gcra)", "it is not in force for others yet");
            assert_eq!(capacities(&old), [10, 20]);
            assert_eq!(new[0].own_policy().to_string(), "a: 30/min (gcra)");
            assert_eq!(new[1].policy().to_string(), "b: 40/min (gcra)");
            Ok(new.to_vec())
        },
    );
    let new = swapped.expect("memory keeps it");
    assert_eq!(code.policy().to_string(), "a: 30/min (gcra)");
    assert_eq!((capacities(&old), capacities(&new)), (vec![30, 40], vec![30, 40, 50]));
    assert!(old[0].is(&new[0]) && code.is(&new[0]));
}

#[test]
fn when_what_stands_on_them_cannot_be_built_no_policy_takes_effect() {
    let (store, _) = store();
    let old = put(&store, [("a", "10/min")]);
    let failed = limiter::replace_all(
        &store,
        policies([("a", "30/min"), ("b", "40/min")]),
        |_| Inherit::Spent,
        |_| Err::<(), _>(ConfigError::new(ConfigErrorKind::Layer, "no")),
    );
    assert_eq!(failed.map_err(|error| error.to_string()), Err("no".into()));
    assert_eq!(capacities(&old), [10]);
    let shared = Policy::gcra("a", "10/min").on(&store).expect("it is open");
    assert_eq!(shared.policy().to_string(), "a: 10/min (gcra)");
    assert!(Policy::gcra("b", "1/min").on(&store).is_ok(), "the name is free");
}

#[tokio::test]
async fn overrides_and_replacements_by_code_are_for_limiters_of_rules_too() {
    let (store, _) = store();
    let limiters = put(&store, [("a", "10/min")]);
    let overrides = Overrides::of(&store);
    let put = overrides.put(Override::builder("a", "ada").quota("3/min")).await.expect("it can be put");
    assert_eq!(capacities(&limiters), [3]);
    overrides.withdraw("a", put.version(), "ada").await.expect("it stands");
    assert_eq!(capacities(&limiters), [10]);
    let store: std::sync::Arc<dyn Store> = (&store).into();
    let code = store.limiters().get("a").expect("it is open");
    code.replace(policies([("a", "8/min")])[0].clone(), Inherit::Spent).expect("memory keeps it");
    assert_eq!(capacities(&limiters), [8]);
}

#[tokio::test]
async fn an_override_that_stands_when_policies_are_put_ends_by_its_time() {
    let (store, clock) = store();
    let _old = put(&store, [("a", "10/min")]);
    let lasting = Override::builder("a", "ada").quota("3/min").lasting(crate::support::secs(60));
    Overrides::of(&store).put(lasting).await.expect("it can be put");
    let new = put(&store, [("a", "20/min")]);
    assert_eq!(capacities(&new), [3]);
    clock.advance(crate::support::secs(61));
    assert_eq!(capacities(&new), [20]);
}
