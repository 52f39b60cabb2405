//! Warnings of budgets that instances share on a server.

use std::sync::Arc;
use std::time::Duration;

use sluicegate::observed::{Events, Observed};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::store::{Event, IntoStore};
use sluicegate_core::{Policy, RateLimiter, Store};
use sluicegate_fleet::Leased;
use sluicegate_tests::servers::deployments::standalone;

use crate::support::{connected, patient};

type Warnings = Events<(u8, u64, u64)>;

/// An instance, and its warnings: the percent, and the units used of the limit.
fn instance(name: &str, store: impl IntoStore, quota: &str) -> (RateLimiter, Warnings) {
    let store = Observed::named(name, store).unwrap();
    let warnings = store.events(1_000, |event| match event {
        Event::BudgetUsed { percent, used, limit, .. } => Some((*percent, *used, *limit)),
        _ => None,
    });
    (Policy::gcra("tokens", quota).refunds().on(&store).unwrap(), warnings)
}

fn told(warnings: &mut Warnings) -> Vec<(u8, u64, u64)> {
    std::iter::from_fn(|| warnings.try_next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_instance_warns_once_a_period_of_a_budget_that_all_have_used_together() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_767_225_600)); // 2026
    let store = async || connected(patient("budgets").clock(clock.clone()), &standalone().url()).await;
    let [mut one, mut two] = [("budgets-1", store().await), ("budgets-2", store().await)]
        .map(|(name, store)| instance(name, store, "100/month carry over 20"));
    let spend = async |of: &mut (RateLimiter, Warnings), cost| {
        let decision = of.0.check("ada").cost(cost).await.unwrap();
        (decision.remaining(), told(&mut of.1))
    };
    assert_eq!(spend(&mut one, 45).await, (55, vec![]));
    assert_eq!(spend(&mut two, 45).await, (10, vec![(50, 90, 100), (80, 90, 100)]));
    assert_eq!(spend(&mut one, 1).await, (9, vec![(50, 91, 100), (80, 91, 100)]), "it learns of it here");
    assert_eq!(spend(&mut two, 9).await, (0, vec![(100, 100, 100)]));
    // A refusal tells it as well.
    assert_eq!(spend(&mut one, 1).await, (0, vec![(100, 100, 100)]));
    assert_eq!((spend(&mut one, 1).await, spend(&mut two, 1).await), ((0, vec![]), (0, vec![])));
    clock.advance(Duration::from_secs(31 * 86_400));
    assert_eq!(spend(&mut one, 49).await, (51, vec![]));
    assert_eq!(spend(&mut two, 1).await, (50, vec![(50, 50, 100)]));
    // An instance that starts again has forgotten what it has told.
    drop(one);
    let mut one = instance("budgets-1", store().await, "100/month carry over 20");
    assert_eq!(spend(&mut one, 1).await, (49, vec![(50, 51, 100)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_is_spent_from_leases_warns_of_each_part_once() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_767_225_600));
    let store = connected(patient("leased-budget").clock(clock.clone()), &standalone().url()).await;
    let store: Arc<dyn Store> = Leased::builder(store).clock(clock.clone()).build().unwrap().into();
    let (limiter, mut warnings) = instance("leased-budget", store, "1000/month");
    let mut allowed = 0;
    for _ in 0..1_100 {
        allowed += u64::from(limiter.check("ada").await.unwrap().is_allowed());
    }
    let told = told(&mut warnings);
    assert_eq!(told.iter().map(|(percent, ..)| *percent).collect::<Vec<_>>(), [50, 80, 100], "{told:?}");
    assert!(told.iter().all(|(percent, used, limit)| used * 100 >= u64::from(*percent) * limit), "{told:?}");
    assert_eq!(allowed, 1_000);
}
