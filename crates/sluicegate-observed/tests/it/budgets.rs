//! Warnings of budgets, which are quotas of a calendar, and the keys that are nearest to the end of theirs.

use std::time::{Duration, UNIX_EPOCH};

use sluicegate_core::clock::ManualClock;
use sluicegate_core::key::KeyKind;
use sluicegate_core::limiter::{Inherit, check_all};
use sluicegate_core::policy::{PolicyBuilder, PolicyMode};
use sluicegate_core::store::Event;
use sluicegate_core::{Key, MemoryStore, OnOutage, Policy, RateLimiter};
use sluicegate_observed::{Events, KeyBudget, Observed};
use sluicegate_tests::memory::answer;
use sluicegate_tests::outages::{FAILS, Scene, admitted};

const DAY: Duration = Duration::from_secs(86_400);
/// The first of January 2026 in UTC.
const NEW_YEAR: Duration = Duration::from_secs(1_767_225_600);

/// A warning: the percent, and the units used of the limit.
type Warning = (u8, u64, u64);

/// A policy on an observed store, and the warnings of it.
struct Scenario {
    store: Observed,
    clock: ManualClock,
    limiter: RateLimiter,
    warnings: Events<(Option<String>, Warning, Duration)>,
}

impl Scenario {
    fn new(name: &str, policy: PolicyBuilder) -> Self {
        let clock = ManualClock::new();
        clock.set(NEW_YEAR);
        let memory = MemoryStore::builder().clock(clock.clone()).build().expect("a store of the usual size");
        let store = Observed::named(name, memory).expect("the name is free");
        let warnings = warnings(&store);
        let limiter = policy.on(&store).expect("the policy fits the store");
        Self { store, clock, limiter, warnings }
    }

    fn spend(&mut self, key: &str, cost: u64) -> Vec<Warning> {
        _ = answer(self.limiter.check(key_of(key)).cost(cost));
        self.told()
    }

    fn told(&mut self) -> Vec<Warning> {
        std::iter::from_fn(|| self.warnings.try_next()).map(|(_, warning, _)| warning).collect()
    }

    fn nearest(&self) -> Vec<KeyBudget> {
        self.store.snapshot().policies.into_iter().flat_map(|policy| policy.budgets).collect()
    }
}

fn key_of(key: &str) -> Key {
    Key::from(key).of_kind(KeyKind::Name)
}

fn warnings(store: &Observed) -> Events<(Option<String>, Warning, Duration)> {
    store.events(10_000, |event| match event {
        Event::BudgetUsed { subject, percent, used, limit, until, .. } => {
            let key = subject.key.and_then(|key| key.to_key().in_clear());
            let until = until.duration_since(UNIX_EPOCH).expect("it is after the epoch");
            Some((key, (*percent, *used, *limit), until))
        }
        _ => None,
    })
}

#[test]
fn each_part_of_a_budget_warns_once_a_period_and_key() {
    let mut at = Scenario::new("parts", Policy::gcra("tokens", "100/month"));
    assert_eq!(at.spend("ada", 49), []);
    assert_eq!(at.spend("ada", 1), [(50, 50, 100)]);
    assert_eq!(at.spend("ada", 29), []);
    assert_eq!(at.spend("bob", 90), [(50, 90, 100), (80, 90, 100)], "all parts that it has passed");
    assert_eq!(at.spend("ada", 21), [(80, 100, 100), (100, 100, 100)]);
    assert_eq!(at.spend("ada", 1), [], "a refusal is no use of the budget");
    assert_eq!(at.spend("bob", 11), [], "a cost that does not fit is not spent");

    at.clock.set(NEW_YEAR + 31 * DAY - Duration::from_micros(1));
    assert_eq!(at.spend("ada", 1), [], "January has not ended");
    at.clock.set(NEW_YEAR + 31 * DAY);
    assert_eq!(at.spend("ada", 50), [(50, 50, 100)]);
    at.clock.set(NEW_YEAR + 59 * DAY);
    _ = answer(at.limiter.check(key_of("ada")).cost(50));
    let (key, warning, until) = at.warnings.try_next().expect("March has begun");
    assert_eq!((key.as_deref(), warning, until), (Some("\"ada\""), (50, 50, 100), NEW_YEAR + 90 * DAY));
}

#[test]
fn units_that_come_back_and_are_spent_again_warn_once() {
    let mut at = Scenario::new("back", Policy::gcra("tokens", "100/month").refunds());
    let mut receipt = answer(at.limiter.check(key_of("ada")).cost(60)).take_receipt(0).expect("it has spent");
    assert_eq!(at.told(), [(50, 60, 100)]);
    _ = answer(at.limiter.refund(key_of("ada"), 40).of(&mut receipt));
    assert_eq!(at.nearest()[0].used, 20, "the list knows of it");
    assert_eq!(at.spend("ada", 60), [(80, 80, 100)], "and no second one of 50");
    // A reservation is used until it is settled, and a settlement may cost more.
    _ = answer(at.limiter.charge(key_of("ada"), 70));
    assert_eq!(at.told(), [(100, 100, 100)], "a debt is no more than all of it");
    at.clock.advance(31 * DAY);
    assert_eq!(at.spend("ada", 49), [], "a debt ends with its month");
    assert_eq!(at.spend("ada", 1), [(50, 50, 100)]);
}

#[test]
fn units_that_are_carried_over_are_on_top_of_the_limit() {
    let mut at = Scenario::new("carried", Policy::gcra("tokens", "100/month carry over 40"));
    assert_eq!(at.spend("ada", 50), [(50, 50, 100)], "a newcomer has the limit");
    at.clock.advance(31 * DAY);
    assert_eq!(at.spend("ada", 89), [], "140 were there: 51 are left");
    assert_eq!(at.spend("ada", 1), [(50, 50, 100)]);
    assert_eq!(at.spend("ada", 50), [(80, 100, 100), (100, 100, 100)]);
}

#[test]
fn numbers_of_a_key_are_those_that_warn_and_others_warn_anew() {
    let mut at = Scenario::new("own", Policy::gcra("tokens", "100/month"));
    assert_eq!(at.spend("ada", 100).len(), 3);
    let larger = at.limiter.with_quotas("1000/month").expect("they fit");
    let spend = |cost| _ = answer(larger.check(key_of("ada")).cost(cost));
    spend(399);
    assert_eq!(at.told(), []);
    spend(1);
    assert_eq!(at.told(), [(50, 500, 1_000)]);
    spend(1);
    assert_eq!(at.told(), []);

    // A key that brings a budget to a policy without one, and a key that brings none to a policy with one.
    let mut at = Scenario::new("brought", Policy::fixed_window("plain", "10/min"));
    let month = at.limiter.with_quotas("10/month").expect("they fit");
    _ = answer(month.check(key_of("ada")).cost(5));
    assert_eq!((at.told(), at.spend("bob", 10)), (vec![(50, 5, 10)], vec![]));
    let mut at = Scenario::new("taken", Policy::gcra("tokens", "10/month"));
    let minute = at.limiter.with_quotas("10/min by fixed-window").expect("they fit");
    _ = answer(minute.check(key_of("ada")).cost(9));
    assert_eq!(at.told(), []);
}

#[test]
fn a_policy_that_replaces_another_one_warns_by_its_own_numbers() {
    let mut at = Scenario::new("replaced", Policy::gcra("tokens", "100/month"));
    assert_eq!(at.spend("ada", 60), [(50, 60, 100)]);
    let replace =
        |policy: PolicyBuilder| at.limiter.replace(policy.build().expect("a policy"), Inherit::Spent);
    replace(Policy::gcra("tokens", "100/month").version(2)).expect("it fits");
    replace(Policy::gcra("tokens", "200/month")).expect("it fits");
    assert_eq!(at.spend("ada", 40), [(50, 100, 200)]);
}

#[test]
fn several_limits_of_a_request_warn_of_their_own_budgets() {
    let mut at =
        Scenario::new("several", Policy::gcra("day", "10/day in Asia/Seoul").and("1000/min").and("20/month"));
    let other = Policy::gcra("other", "10/year").on(&at.store).expect("it fits");
    let plain = Policy::gcra("plain", "10/min").on(&at.store).expect("it fits");
    let key = key_of("ada");
    _ = answer(check_all([plain.check(&key).cost(9), at.limiter.check(&key).cost(10), other.check(&key)]));
    assert_eq!(at.told(), [(50, 10, 10), (80, 10, 10), (100, 10, 10), (50, 10, 20)]);
    let budgets = at.nearest();
    let shown: Vec<_> = budgets.iter().map(|of| (&*of.key, of.quota, of.used, of.limit)).collect();
    let ada = "\"ada\"";
    assert_eq!(shown, [(ada, 0, 10, 10), (ada, 2, 10, 20), (ada, 0, 1, 10)]);
}

#[test]
fn a_policy_in_shadow_is_listed_and_warns_once_it_is_enforced() {
    let mut at = Scenario::new("shadow", Policy::gcra("tokens", "10/month").shadow());
    assert_eq!((at.spend("ada", 9), at.nearest()[0].used), (vec![], 9));
    let policy = at.limiter.policy().in_mode(PolicyMode::Enforce);
    at.limiter.replace(policy, Inherit::Spent).expect("it fits");
    assert_eq!(at.spend("ada", 1), [(50, 10, 10), (80, 10, 10), (100, 10, 10)]);
    // A look changes nothing.
    _ = answer(at.limiter.peek("bob").cost(9));
    assert_eq!((at.told(), at.nearest().len()), (vec![], 1));
}

#[test]
fn a_key_that_is_suspended_has_used_no_budget() {
    let mut at =
        Scenario::new("suspended", Policy::gcra("tokens", "10/month").suspend(100, "10min", "30min"));
    _ = answer(at.limiter.check(key_of("ada")));
    let _ = at
        .limiter
        .suspensions()
        .suspend(key_of("ada"), Duration::from_secs(60))
        .now()
        .expect("memory")
        .expect("answers");
    assert_eq!((at.spend("ada", 1), at.nearest()[0].used), (vec![], 1));
}

#[test]
fn a_flood_of_keys_warns_once_each_and_lists_the_nearest() {
    let mut at = Scenario::new("flood", Policy::gcra("tokens", "10/month").refunds());
    let keys: Vec<String> = (0..6_000).map(|key| format!("key-{key}")).collect();
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(at.spend(key, 5), [(50, 5, 10)], "{key}");
        // Each key goes on, and the later ones go further.
        let more = u64::from(place >= 5_990);
        assert_eq!(at.spend(key, more), [], "{key}");
    }
    let nearest = at.nearest();
    assert_eq!((nearest.len(), nearest.iter().filter(|of| of.used == 6).count()), (16, 10));
    let listed = at.store.listed_key("tokens", &nearest[0].reference).expect("it is listed");
    assert!(keys[5_990..].iter().any(|key| key_of(key) == listed), "{listed:?}");
    at.clock.advance(31 * DAY);
    assert_eq!(at.nearest(), [], "a period that has ended");
    assert_eq!(at.spend("key-1", 8), [(50, 8, 10), (80, 8, 10)], "there is room again");
    assert_eq!(at.nearest()[0].used, 8);
}

#[test]
fn an_outage_warns_of_nothing() {
    let scene = Scene::new(|builder| builder);
    let store = Observed::named("budget-outage", &scene.store).expect("free");
    let mut told = warnings(&store);
    let limiter = Policy::gcra("p", "100/month").on_outage(OnOutage::Local).on(&store).expect("it fits");
    assert_eq!(admitted(&limiter, "ada", 10), 10);
    scene.mood(FAILS);
    assert!(admitted(&limiter, "ada", 100) < 30, "this instance has a share of the budget");
    assert!(told.try_next().is_none(), "and knows nothing of the whole");
}

#[test]
fn the_pace_of_the_period_tells_when_a_budget_is_used_up() {
    let mut at = Scenario::new("pace", Policy::gcra("tokens", "100/month"));
    at.spend("ada", 20);
    let used_up = |at: &Scenario| at.nearest()[0].used_up_at(at.store.snapshot().at);
    assert_eq!(used_up(&at), Some(UNIX_EPOCH + NEW_YEAR), "it has used units in no time");
    at.clock.set(NEW_YEAR + 2 * DAY);
    assert_eq!(used_up(&at), Some(UNIX_EPOCH + NEW_YEAR + 10 * DAY));
    at.clock.set(NEW_YEAR + 7 * DAY);
    assert_eq!(used_up(&at), None, "the month ends before");
    at.spend("ada", 80);
    assert_eq!(used_up(&at), Some(UNIX_EPOCH + NEW_YEAR + 7 * DAY), "it is used up");
}

/// A key was once listed with the budget of a policy that was gone until the period of that budget ended.
#[test]
fn keys_whose_budgets_were_replaced_or_reset_are_listed_by_those_that_they_have_now() {
    let mut at = Scenario::new("replaced-nearest", Policy::gcra("tokens", "100/month"));
    let listed = |at: &Scenario| -> Vec<(u64, u64)> {
        at.nearest().iter().map(|budget| (budget.used, budget.limit)).collect()
    };
    let replace = |at: &Scenario, quota: &str, how| {
        let next = Policy::gcra("tokens", quota).build().expect("it is possible");
        at.limiter.replace(next, how).expect("memory keeps it");
    };
    at.spend("ada", 90);
    replace(&at, "200/month", Inherit::Spent);
    assert_eq!(listed(&at), [(90, 100)], "until it asks");
    at.spend("ada", 1);
    assert_eq!(listed(&at), [(91, 200)]);
    replace(&at, "500/h", Inherit::Spent);
    assert_eq!(listed(&at), [], "it has no budget");
    replace(&at, "500/day in UTC", Inherit::Spent);
    at.spend("ada", 7);
    assert_eq!(listed(&at), [(98, 500)]);
    at.limiter.reset_all().expect("memory keeps it");
    assert_eq!(listed(&at), []);

    for (quota, expected) in
        [("50/day in UTC", (9, 50)), ("100/month", (18, 100)), ("60/day in UTC", (27, 60))]
    {
        let own = at.limiter.with_quotas(quota).expect("memory keeps it");
        assert!(answer(own.check(key_of("ada")).cost(9)).is_allowed());
        assert_eq!(listed(&at), [expected], "a key that brings another calendar");
    }
}
