//! Several policies are opened or replaced, all or none.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Barrier};
use std::thread;

use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::limiter::{self, Inherit};
use sluicegate_core::{MemoryStore, Policy, RateLimiter, Store};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::plain;

use crate::support::answer;

/// The stores that have to keep the promise, each with a memory store inside.
fn stores() -> [Arc<dyn Store>; 3] {
    let memory = || MemoryStore::builder().table_size(64).log_entries(1_024).build().unwrap();
    let resilient = Resilient::builder(memory()).fallback(memory()).build().unwrap();
    [memory().into(), resilient.into(), plain(memory())]
}

/// Five policies, of which the third is one that a memory store cannot keep if `is_bad`.
fn five(limit: u64, is_bad: bool) -> Vec<Policy> {
    let policy = |name: &str| Policy::gcra(name, format!("{limit}/min").as_str()).build().unwrap();
    let log = if is_bad { "999999/min" } else { "5/min" };
    let third = Policy::sliding_log("c", log).build().unwrap();
    vec![policy("a"), policy("b"), third, policy("d"), policy("e")]
}

fn names(store: &Arc<dyn Store>) -> Vec<String> {
    store.limiters().all().iter().map(|limiter| limiter.policy().to_string()).collect()
}

fn replace_all(
    store: &Arc<dyn Store>,
    policies: Vec<Policy>,
    inherit: Inherit,
) -> Result<Vec<RateLimiter>, ConfigError> {
    limiter::replace_all(Arc::clone(store), policies, |_| inherit, |all| Ok(all.to_vec()))
}

#[test]
fn policies_of_which_one_is_refused_are_not_opened() {
    for store in stores() {
        let refused = limiter::open_all(Arc::clone(&store), five(5, true)).unwrap_err();
        assert_eq!(refused.kind(), ConfigErrorKind::Unsupported);
        assert!(names(&store).is_empty());
        // Their names are free.
        let opened = limiter::open_all(Arc::clone(&store), five(6, false)).unwrap();
        let names: Vec<_> = opened.iter().map(|limiter| limiter.policy().name().to_owned()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
    }
}

#[test]
fn policies_of_which_one_is_refused_replace_nothing() {
    for store in stores() {
        let opened = limiter::open_all(Arc::clone(&store), five(5, false)).unwrap();
        for limiter in &opened {
            assert_eq!(answer(limiter.check("ada").cost(3)).remaining(), 2);
        }
        let before = names(&store);
        for inherit in [Inherit::Spent, Inherit::Reset, Inherit::AsIs] {
            let refused = replace_all(&store, five(9, true), inherit).unwrap_err();
            assert_eq!(refused.kind(), ConfigErrorKind::Unsupported);
        }
        assert_eq!(names(&store), before);
        for limiter in &opened {
            assert_eq!((limiter.replacements(), answer(limiter.peek("ada")).remaining()), (0, 2));
            assert!(!answer(limiter.check("ada").cost(3)).is_allowed());
        }
    }
}

#[test]
fn what_is_open_is_replaced_for_everybody_and_what_is_not_is_opened() {
    for store in stores() {
        let opened = limiter::open_all(Arc::clone(&store), five(5, false)).unwrap();
        assert_eq!(answer(opened[0].check("ada").cost(3)).remaining(), 2);
        let mut policies = five(9, false);
        policies.push(Policy::gcra("f", "1/min").build().unwrap());
        let replaced = replace_all(&store, policies, Inherit::Spent).unwrap();
        assert!(opened.iter().zip(&replaced).all(|(old, new)| old.is(new)));
        assert_eq!(answer(opened[0].peek("ada")).remaining(), 6, "three are spent");
        assert_eq!(opened[2].replacements(), 0, "its policy is as it was");
        assert_eq!(names(&store).len(), 6);
    }
}

#[test]
fn a_name_that_is_open_for_a_different_policy_opens_none_of_them() {
    for store in stores() {
        let open = Policy::gcra("d", "1/h").on(Arc::clone(&store)).unwrap();
        let refused = limiter::open_all(Arc::clone(&store), five(5, false)).unwrap_err();
        assert_eq!(refused.kind(), ConfigErrorKind::NameTaken);
        assert_eq!(names(&store), [open.policy().to_string()]);
        let twice = [five(5, false), five(5, false)].concat();
        let refused = replace_all(&store, twice, Inherit::Spent).unwrap_err();
        assert!(refused.to_string().contains("two policies named \"a\""), "{refused}");
    }
}

#[test]
fn two_that_open_and_replace_at_once_each_do_it_whole() {
    for store in stores() {
        let barrier = Barrier::new(2);
        let put = |limit: u64| {
            barrier.wait();
            let rounds = (0..50).filter_map(|round| {
                let policies = five(limit + round % 2, round % 5 == 4);
                replace_all(&store, policies, Inherit::Spent).ok()
            });
            rounds.collect::<Vec<_>>().pop().unwrap()
        };
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| put(20));
            (put(10), other.join().unwrap())
        });
        assert!(one.iter().zip(&other).all(|(one, other)| one.is(other)));
        let last = store.limiters().all();
        let limit = |index: usize| last[index].policy().quotas()[0].quota().limit();
        assert!([1, 3, 4].iter().all(|index| limit(*index) == limit(0)), "{:?}", names(&store));
    }
}
