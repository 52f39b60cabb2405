//! A store that fails, hangs and comes back, behind `Resilient`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use sluicegate_conformance::Conformance;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::{ConfigErrorKind, StoreErrorKind};
use sluicegate_core::limiter::check_all;
use sluicegate_core::limiter::{Inherit, Turn};
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Limiters, Mode, PreparedPolicy};
use sluicegate_core::{ConfigError, Key, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store};
use sluicegate_resilient::Resilient;
use sluicegate_resilient::{BreakerSettings, BreakerState};
use sluicegate_tests::outages::{
    CHARGES_NOTHING_ALONE, CHARGES_NOTHING_ALONE_AND_LATE, ERRS, FAILS, HANGS, Scene, WORKS, admitted, now,
};

/// A memory store that refuses some policies.
struct Picky {
    store: Arc<dyn Store>,
    refuses: AtomicU8,
    limiters: Limiters,
}

impl Picky {
    fn new() -> Arc<Self> {
        let store = MemoryStore::new().into();
        Arc::new(Self { store, refuses: AtomicU8::new(0), limiters: Limiters::default() })
    }
}

impl Store for Picky {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        match self.refuses.load(Ordering::Relaxed) {
            0 => self.store.open(policy, replaces),
            _ => Err(ConfigError::new(ConfigErrorKind::Store, "not today")),
        }
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.store.decide(asks)
    }
}

#[test]
fn while_the_store_fails_each_instance_admits_its_share_and_the_store_is_left_alone() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    assert_eq!(now(limiter.check("ada")).decided_by(), DecidedBy::Store);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "bob", 100), 25);
    assert_eq!(now(limiter.check("bob")).decided_by(), DecidedBy::Fallback);
    assert_eq!(scene.calls(), 1 + 5, "five failures in a row, and it is not asked any more");
    let status = scene.store.status();
    assert_eq!((status.breaker, status.opened, status.unavailable), (BreakerState::Open, 1, 5));
    assert_eq!((status.fallback_decisions, status.debts), (101, 1));
}

#[test]
fn a_key_that_has_spent_its_share_before_the_outage_has_no_fresh_one() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    assert_eq!(admitted(&limiter, "ada", 20), 20);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 20), 5);
}

#[tokio::test]
async fn what_the_fallback_admitted_is_charged_when_the_store_is_back() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 10), 10);
    assert!(now(limiter.refund("ada", 2)).is_allowed());
    assert!(now(limiter.charge("ada", 4)).is_allowed());
    scene.mood(WORKS);
    scene.advance(2);
    // Three trials close the breaker; they ask for another key.
    assert_eq!(admitted(&limiter, "bob", 3), 3);
    tokio::task::yield_now().await;
    assert_eq!(now(limiter.peek("ada")).remaining(), 100 - 12);
    let status = scene.store.status();
    assert_eq!((status.breaker, status.debts), (BreakerState::Closed, 0));
    assert_eq!(status.in_fallback, Duration::from_secs(2));
}

#[tokio::test]
async fn what_no_longer_counts_is_not_charged() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 10), 10);
    scene.mood(WORKS);
    scene.advance(3_600);
    assert_eq!(admitted(&limiter, "bob", 3), 3);
    tokio::task::yield_now().await;
    assert_eq!(now(limiter.peek("ada")).remaining(), 100);
}

#[tokio::test]
async fn a_debt_waits_until_the_store_takes_it() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    for key in 0..40_u64 {
        assert!(now(limiter.check(format!("user-{key}"))).is_allowed());
    }
    scene.mood(WORKS);
    scene.advance(2);
    assert!(now(limiter.check("bob")).is_allowed());
    scene.mood(FAILS);
    tokio::task::yield_now().await;
    assert_eq!(scene.store.status().debts, 40, "the store was gone again before it could be charged");
    scene.mood(WORKS);
    scene.advance(2);
    assert_eq!(admitted(&limiter, "bob", 4), 4);
    tokio::task::yield_now().await;
    for key in 0..40_u64 {
        assert_eq!(now(limiter.peek(format!("user-{key}"))).remaining(), 99);
    }
}

#[tokio::test]
async fn a_store_that_takes_no_charges_is_asked_to_less_and_less_often_until_it_takes_one_or_a_part_is_back()
{
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    let debt = |key: &str| {
        scene.mood(FAILS);
        assert_eq!(admitted(&limiter, key, 1), 1);
        scene.mood(CHARGES_NOTHING_ALONE);
    };
    // How often it is asked to take the debts, in ten minutes of ten answers a second.
    let tries = async || {
        let before = scene.calls();
        for _ in 0..6_000 {
            let _ = now(limiter.peek("bob"));
            tokio::task::yield_now().await;
            scene.clock.advance(Duration::from_millis(100));
        }
        scene.calls() - before - 6_000
    };
    debt("ada");
    let first = tries().await;
    assert!((60..=75).contains(&first), "{first}: every ten seconds, and more often at first");
    // A breaker that opens and closes has nothing of these pauses.
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "eve", 5), 5);
    scene.mood(WORKS);
    scene.advance(2);
    assert_eq!(admitted(&limiter, "bob", 3), 3);
    tokio::task::yield_now().await;
    assert_eq!((now(limiter.peek("ada")).remaining(), scene.store.status().debts), (99, 0));
    debt("ada");
    assert_eq!(admitted(&limiter, "bob", 1), 1);
    tokio::task::yield_now().await;
    scene.mood(WORKS);
    scene.clock.advance(Duration::from_millis(200));
    assert_eq!(admitted(&limiter, "bob", 1), 1);
    tokio::task::yield_now().await;
    assert_eq!(scene.store.status().debts, 0, "the pauses are short again");
}

/// Once a charge had no deadline, and was repeated until it was answered: a key could be charged many times over.
#[tokio::test(start_paused = true)]
async fn a_charge_that_is_not_answered_in_time_is_given_up() {
    let scene = Scene::new(|builder| builder.deadline(Duration::from_millis(50)));
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 1), 1);
    scene.mood(WORKS);
    assert_eq!(admitted(&limiter, "bob", 1), 1);
    scene.mood(HANGS);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let status = scene.store.status();
    assert_eq!((status.timeouts, status.debts), (1, 0));
    scene.mood(WORKS);
    assert_eq!(admitted(&limiter, "bob", 1), 1);
    tokio::task::yield_now().await;
    assert_eq!(now(limiter.peek("ada")).remaining(), 100);
}

#[test]
fn a_client_within_a_limit_that_counts_refused_requests_keeps_its_share_in_an_outage() {
    for (replicas, a_second) in [(1, 10), (3, 5)] {
        let scene = Scene::new(|builder| builder.replicas(replicas));
        let limiter = Policy::gcra("api", "15/s").count_rejected().on(&scene.store).unwrap();
        let steady = |seconds: u64| {
            let calls = (0..seconds * 10).filter(|_| {
                scene.clock.advance(Duration::from_millis(100));
                now(limiter.check("ada")).is_allowed()
            });
            calls.count()
        };
        assert_eq!(steady(10), 100, "the store lets all of it pass");
        scene.mood(FAILS);
        steady(1); // the share has its burst, or what the store has left of it
        assert_eq!(steady(10), 10 * a_second, "with {replicas} replicas");
    }
}

#[test]
fn a_flood_is_kept_out_in_an_outage_where_one_instance_has_the_whole_limit() {
    for (replicas, passed) in [(1, 0), (3, 50)] {
        let scene = Scene::new(|builder| builder.replicas(replicas));
        let limiter = Policy::gcra("api", "15/s").count_rejected().on(&scene.store).unwrap();
        scene.mood(FAILS);
        admitted(&limiter, "ada", 100);
        let flood = (0..500).filter(|_| {
            scene.clock.advance(Duration::from_millis(20));
            now(limiter.check("ada")).is_allowed()
        });
        assert_eq!(flood.count(), passed, "with {replicas} replicas");
    }
}

#[test]
fn in_an_outage_a_newcomer_has_its_share_of_the_start_and_a_key_that_was_there_is_known() {
    let scene = Scene::new(|builder| builder);
    let limiter = Policy::gcra("starts", "60/min start 10").on(&scene.store).unwrap();
    assert!(now(limiter.check("ada")).is_allowed());
    // A quarter is "15/min start 2": with what was mirrored there, ada's is full after 56 seconds.
    scene.advance(60);
    scene.mood(FAILS);
    assert_eq!((admitted(&limiter, "bob", 100), admitted(&limiter, "ada", 100)), (2, 15));
}

#[test]
fn policies_may_let_pass_or_refuse_instead() {
    let scene = Scene::new(|builder| builder);
    let open = scene.limiter(OnOutage::Allow);
    let closed = Policy::gcra("login", "5/min").on_outage(OnOutage::Deny).on(&scene.store).unwrap();
    scene.mood(FAILS);
    let passed = now(open.check("ada").cost(1_000));
    assert_eq!((passed.outcome(), passed.decided_by()), (Outcome::Allowed, DecidedBy::Outage));
    let refused = now(closed.check("ada"));
    assert_eq!((refused.outcome(), refused.decided_by()), (Outcome::Denied, DecidedBy::Outage));
    assert!(refused.retry_after().unwrap() >= Duration::from_secs(1));
    let ada = Key::from("ada");
    let both = now(check_all([open.check(&ada), closed.check(&ada)]));
    assert_eq!((both.outcome(), both.deciding().policy_index()), (Outcome::Denied, 1));
}

#[test]
fn several_policies_are_decided_together_by_those_that_decide_locally() {
    let scene = Scene::new(|builder| builder);
    let open = scene.limiter(OnOutage::Allow);
    let local = Policy::gcra("login", "8/min").on(&scene.store).unwrap();
    scene.mood(FAILS);
    let ada = Key::from("ada");
    let both = || now(check_all([open.check(&ada), local.check(&ada)]));
    let first = both();
    assert_eq!((first.decided_by(), first.deciding().policy_index()), (DecidedBy::Fallback, 1));
    assert!(both().is_allowed());
    assert!(!both().is_allowed(), "a quarter of eight");
}

#[test]
fn a_cost_that_is_too_much_for_the_share_only_has_to_wait_for_the_store() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    let refused = now(limiter.check("ada").cost(60));
    assert_eq!((refused.outcome(), refused.decided_by()), (Outcome::Denied, DecidedBy::Outage));
    assert_eq!(now(limiter.check("ada").cost(101)).outcome(), Outcome::Impossible);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_costs_a_deadline_a_few_times_and_then_nothing() {
    let scene = Scene::new(|builder| builder.deadline(Duration::from_millis(50)));
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(HANGS);
    let start = tokio::time::Instant::now();
    for _ in 0..20 {
        assert!(limiter.check("ada").await.unwrap().is_allowed());
    }
    assert_eq!(start.elapsed().as_millis() / 10, 25, "five times 50 ms");
    assert_eq!(scene.store.status().timeouts, 5);
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_nobody_waits_for_makes_room_for_the_next() {
    let scene = Scene::new(|builder| builder.deadline(Duration::from_millis(50)));
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    admitted(&limiter, "ada", 5);
    scene.mood(HANGS);
    scene.advance(2);
    let trial = limiter.check("ada").start();
    assert_eq!(scene.store.status().breaker, BreakerState::HalfOpen);
    drop(trial);
    scene.mood(WORKS);
    assert_eq!(now(limiter.check("ada")).decided_by(), DecidedBy::Store);
}

#[test]
fn a_part_that_fails_leaves_the_others_alone() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    for _ in 0..10 {
        assert_eq!(now(limiter.check(3_u64)).decided_by(), DecidedBy::Fallback);
    }
    scene.mood(WORKS);
    assert_eq!(now(limiter.check(3_u64)).decided_by(), DecidedBy::Fallback, "its pause is not over");
    assert_eq!(now(limiter.check(4_u64)).decided_by(), DecidedBy::Store);
    assert_eq!(scene.store.status().breaker, BreakerState::Open, "the worst is shown");
}

#[test]
fn mistakes_and_resets_are_errors_and_do_not_open_the_breaker() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(ERRS);
    for _ in 0..20 {
        let error = limiter.check("ada").now().unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ForeignPolicy);
    }
    assert_eq!(scene.store.status().breaker, BreakerState::Closed);
    scene.mood(FAILS);
    assert_eq!(limiter.reset("ada").now().unwrap().unwrap_err().kind(), StoreErrorKind::Unavailable);
}

#[test]
fn a_policy_can_be_replaced_on_both() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    limiter.replace(Policy::fixed_window("api", "8/h").build().unwrap(), Inherit::Reset).unwrap();
    assert_eq!(now(limiter.peek("ada")).capacity(), 8);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "bob", 8), 2);
}

/// It was decided by the share of its own policy, whose keys had gone on under the next one: a burst more.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_out_its_deadline_is_decided_by_the_share_of_the_policy_in_force() {
    let scene = Scene::new(|builder| builder.deadline(Duration::from_millis(50)));
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(HANGS);
    let [first, second] = [20, 5].map(|cost| tokio::spawn(limiter.check("ada").cost(cost).start()));
    tokio::task::yield_now().await;
    for quota in ["60/h", "100/h", "80/h"] {
        limiter.replace(Policy::fixed_window("api", quota).build().unwrap(), Inherit::Spent).unwrap();
    }
    scene.mood(FAILS);
    // A quarter of it.
    assert_eq!(admitted(&limiter, "ada", 18), 18);
    let [first, second] = [first.await.unwrap().unwrap(), second.await.unwrap().unwrap()];
    assert_eq!((first.decided_by(), first.is_allowed()), (DecidedBy::Fallback, false));
    assert_eq!((second.decided_by(), second.is_allowed()), (DecidedBy::Fallback, false));
    assert_eq!(admitted(&limiter, "ada", 18), 2);
}

#[tokio::test]
async fn it_is_a_store_like_any_other_while_nothing_fails() {
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = Resilient::builder(&memory).clock(clock.clone()).build().unwrap();
    let suite = Conformance::new(&store, clock);
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.rejected_requests_count().await;
    suite.modes().await;
    suite.same_decisions_as_memory(Duration::ZERO, 7, 20).await;
}

#[test]
fn settings_that_cannot_work_are_named() {
    let build = |settings| Resilient::builder(MemoryStore::new()).breaker(settings).build();
    let settings = BreakerSettings::new;
    for (settings, named) in [
        (settings().consecutive(0), "0 consecutive failures"),
        (settings().ratio(101, 10), "101 a failure ratio in percent"),
        (settings().ratio(50, 63), "63 calls"),
        (settings().trials(0), "0 trials"),
        (settings().successes(256), "256 successes"),
        (settings().pause(Duration::ZERO, Duration::from_secs(1)), "0ns"),
        (settings().pause(Duration::from_secs(2), Duration::from_secs(1)), "2s, up to 1s"),
    ] {
        let message = build(settings).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }
    let no_replicas = Resilient::builder(MemoryStore::new()).replicas(0).build().unwrap_err();
    assert!(no_replicas.to_string().contains("0 replicas"));
    let no_time = Resilient::builder(MemoryStore::new()).deadline(Duration::ZERO).build().unwrap_err();
    assert!(no_time.to_string().contains("deadline of 0"));
}

/// Once the task took the debts along, and no other was ever begun.
#[test]
fn debts_outlive_the_runtime_that_was_charging_them() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 10), 10);
    scene.mood(WORKS);
    scene.advance(2);
    let first = runtime();
    first.block_on(async {
        assert_eq!(admitted(&limiter, "bob", 3), 3);
        scene.mood(HANGS);
        tokio::task::yield_now().await;
    });
    drop(first);
    scene.mood(WORKS);
    runtime().block_on(async {
        assert_eq!(admitted(&limiter, "bob", 1), 1);
        tokio::task::yield_now().await;
        // What was under way when the runtime ended may have arrived; the next debt is charged, all the same.
        scene.mood(FAILS);
        assert_eq!(admitted(&limiter, "eve", 10), 10);
        scene.mood(WORKS);
        scene.advance(2);
        assert_eq!(admitted(&limiter, "bob", 4), 4);
        tokio::task::yield_now().await;
    });
    assert_eq!(now(limiter.peek("eve")).remaining(), 90);
}

/// Once the day's spending was charged to the minute, too, and the key shut out for most of an hour.
#[tokio::test]
async fn each_quota_is_charged_what_still_counts_under_it() {
    let scene = Scene::new(|builder| builder.replicas(1));
    let limiter = Policy::gcra("api", "10/min").and("1000/day").named("day").on(&scene.store).unwrap();
    scene.mood(FAILS);
    for _ in 0..50 {
        assert_eq!(admitted(&limiter, "ada", 10), 10);
        scene.advance(60);
    }
    scene.mood(WORKS);
    assert_eq!(admitted(&limiter, "bob", 3), 3);
    tokio::task::yield_now().await;
    let status = now(limiter.peek("ada"));
    let left: Vec<_> = status.quotas().iter().map(|status| status.remaining()).collect();
    assert_eq!(left, [10, 534], "500 of the day, of which 34 have leaked since");
    assert!(status.is_allowed());
}

/// What a request turned out to cost is known only when it is over, and may be more than this process' share.
#[tokio::test]
async fn a_charge_beyond_the_share_is_owed_in_full() {
    let scene = Scene::new(|builder| builder);
    for policy in [Policy::fixed_window("window", "3600000/h"), Policy::gcra("tokens", "3600000/h")] {
        let limiter = policy.on(&scene.store).unwrap();
        scene.mood(FAILS);
        assert!(now(limiter.charge("ada", 2_000_000)).is_allowed());
        admitted(&limiter, "eve", 5);
        scene.mood(WORKS);
        scene.advance(2);
        assert_eq!(admitted(&limiter, "bob", 3), 3);
        tokio::task::yield_now().await;
        let left = now(limiter.peek("ada")).remaining();
        assert!((1_600_000..1_610_000).contains(&left), "{limiter:?}: {left}");
    }
}

/// A policy that is replaced during an outage is the same to the key: it owes what it has spent.
#[tokio::test]
async fn debts_are_owed_under_the_policy_that_replaces_theirs() {
    for (inherit, left) in [(Inherit::AsIs, 88), (Inherit::Reset, 98)] {
        let scene = Scene::new(|builder| builder);
        let limiter = scene.limiter(OnOutage::Local);
        scene.mood(FAILS);
        assert_eq!(admitted(&limiter, "ada", 10), 10);
        limiter.replace(Policy::fixed_window("api", "100/h").hidden().build().unwrap(), inherit).unwrap();
        assert_eq!(admitted(&limiter, "ada", 2), 2);
        scene.mood(WORKS);
        scene.advance(2);
        assert_eq!(admitted(&limiter, "bob", 3), 3);
        tokio::task::yield_now().await;
        assert_eq!(now(limiter.peek("ada")).remaining(), left, "{inherit:?}");
    }
}

/// What a response has cost is charged when it is over, and nobody is left who would wait for the answer.
#[tokio::test(start_paused = true)]
async fn a_charge_that_nobody_waits_for_is_owed_if_the_store_does_not_take_it() {
    let scene = Scene::new(|builder| builder.deadline(Duration::from_millis(50)));
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(HANGS);
    drop(limiter.charge("ada", 5).start());
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(scene.store.status().debts, 1);
    scene.mood(WORKS);
    assert_eq!(admitted(&limiter, "bob", 1), 1);
    tokio::task::yield_now().await;
    assert_eq!(now(limiter.peek("ada")).remaining(), 95);
}

/// The store once was given back what it had never counted, by a clock that is not its own.
#[tokio::test]
async fn what_the_fallback_let_pass_is_given_back_where_it_was_noted() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    let mut early = now(limiter.check("ada").cost(10)).take_receipt(0).unwrap();
    let mut late = now(limiter.check("eve").cost(10)).take_receipt(0).unwrap();
    scene.mood(WORKS);
    assert!(now(limiter.refund("ada", 4).of(&mut early)).is_allowed());
    tokio::task::yield_now().await;
    assert_eq!(now(limiter.peek("ada")).remaining(), 100 - 6, "the debt is less");
    assert_eq!(now(limiter.refund("eve", 4).of(&mut late)).remaining(), 90, "the debt was paid before");
    scene.mood(FAILS);
    assert_eq!((admitted(&limiter, "ada", 25), admitted(&limiter, "eve", 25)), (25 - 6, 25 - 6));
}

/// By the fallback's clock the store's units were spent long ago, or are not spent yet.
#[test]
fn what_the_store_let_pass_is_given_back_to_the_fallback_whatever_their_clocks() {
    let ahead = ManualClock::new();
    ahead.set(Duration::from_secs(86_400));
    let memory = MemoryStore::builder().clock(ahead).build().unwrap();
    let scene = Scene::new(|builder| builder.fallback(memory));
    let limiter = scene.limiter(OnOutage::Local);
    let mut receipt = now(limiter.check("ada").cost(20)).take_receipt(0).unwrap();
    scene.mood(FAILS);
    let refunded = now(limiter.refund("ada", 5).of(&mut receipt));
    assert_eq!((refunded.decided_by(), refunded.remaining()), (DecidedBy::Fallback, 10));
    scene.mood(WORKS);
    assert_eq!(now(limiter.refund("ada", 5).of(&mut receipt)).remaining(), 85);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 25), 15, "the fallback has heard of that, too");
}

/// 4 a minute, of which this process has one.
fn turn(limiter: &RateLimiter) -> Turn {
    let _ = now(limiter.check("ada").reserve(Duration::from_secs(600)));
    let decision = now(limiter.check("ada").reserve(Duration::from_secs(600)));
    assert!(!decision.delay().is_zero());
    Turn::new(decision, [(limiter.clone(), "ada".into(), 1)])
}

#[tokio::test(start_paused = true)]
async fn turns_go_back_to_whoever_gave_them() {
    let scene = Scene::new(|builder| builder);
    let limiter = Policy::gcra("mail", "4/min burst 1").on(&scene.store).unwrap();
    scene.mood(FAILS);
    let of_fallback = turn(&limiter);
    scene.mood(WORKS);
    let calls = scene.calls();
    drop(of_fallback);
    assert_eq!(scene.calls(), calls, "the store never knew of it");
    let of_store = turn(&limiter);
    let calls = scene.calls();
    drop(of_store);
    assert_eq!(scene.calls(), calls + 1);
}

/// The store has the turn still, and nobody knows whether it has heard.
#[tokio::test(start_paused = true)]
async fn a_turn_of_the_store_that_is_given_up_in_an_outage_is_lost() {
    let scene = Scene::new(|builder| builder);
    let limiter = Policy::gcra("mail", "4/min burst 1").on(&scene.store).unwrap();
    let of_store = turn(&limiter);
    scene.mood(FAILS);
    drop(of_store);
    scene.mood(WORKS);
    assert_eq!(now(limiter.check("ada").reserve(Duration::from_secs(600))).delay().as_secs(), 30);
}

/// The inner name was once left to a policy that was gone, whose fallback had refused it, with all that was owed.
#[test]
fn a_replacement_that_the_fallback_refuses_does_not_reach_the_store() {
    let picky = Picky::new();
    let fallback = MemoryStore::new();
    let store = Resilient::builder(Arc::clone(&picky) as Arc<dyn Store>).fallback(fallback.clone());
    let store = store.build().unwrap();
    let limiter = Policy::fixed_window("api", "100/h").on_outage(OnOutage::Allow).on(&store).unwrap();
    let _in_its_place = Policy::gcra("api", "1/s").on(&fallback).unwrap();
    picky.refuses.store(1, Ordering::Relaxed);
    let refused = limiter.replace(Policy::fixed_window("api", "50/h").build().unwrap(), Inherit::Reset);
    assert_eq!(refused.unwrap_err().kind(), ConfigErrorKind::NameTaken, "the store within was not asked");
}

#[test]
fn a_replacement_that_the_store_refuses_does_not_stay_in_the_fallback() {
    let picky = Picky::new();
    let fallback = MemoryStore::new();
    let store = Resilient::builder(Arc::clone(&picky) as Arc<dyn Store>).fallback(fallback.clone());
    let store = store.build().unwrap();
    let limiter = Policy::fixed_window("api", "100/h").on(&store).unwrap();
    assert_eq!(now(limiter.check("ada").cost(60)).remaining(), 40);
    picky.refuses.store(1, Ordering::Relaxed);
    assert!(limiter.replace(Policy::gcra("api", "90/h").build().unwrap(), Inherit::Reset).is_err());
    assert_eq!(now(limiter.peek("ada")).remaining(), 40);
    let in_fallback = Policy::fixed_window("api", "100/h").on(&fallback).unwrap();
    assert_eq!(now(in_fallback.peek("ada")).remaining(), 40);
}

/// The fallback once spent the highest of the costs from every quota.
#[test]
fn a_cost_of_its_own_for_each_quota_reaches_the_fallback() {
    let scene = Scene::new(|builder| builder.replicas(1));
    let limiter = Policy::fixed_window("api", "10/min").and("100/h").named("hour").on(&scene.store).unwrap();
    let policy = Policy::fixed_window("api", "10/min").and("100/h").named("hour").build().unwrap();
    let opened = limiter.store().open(Arc::new(policy), None).unwrap();
    let ada = Key::from("ada");
    let ask = |costs| Ask::new(&opened, ada.as_ref(), 0, Mode::Charge).with_costs(costs);
    let _ = now(limiter.store().decide(&[ask(&[2, 5])]));
    scene.mood(FAILS);
    let _ = now(limiter.store().decide(&[ask(&[1, 3])]));
    let status = now(limiter.peek("ada"));
    let left: Vec<_> = status.quotas().iter().map(|status| status.remaining()).collect();
    assert_eq!(left, [7, 92]);
}

/// A key that had been reset was charged what it owed from before, in full under a policy that has no share here, and
/// otherwise as far as the store had counted new units.
#[tokio::test]
async fn a_key_that_is_reset_owes_nothing_from_before_also_while_its_debt_is_being_charged() {
    for on_outage in [OnOutage::Local, OnOutage::Deny] {
        for (mood, is_out) in [(CHARGES_NOTHING_ALONE, false), (CHARGES_NOTHING_ALONE_AND_LATE, true)] {
            let scene = Scene::new(|builder| builder);
            let limiter = scene.limiter(on_outage);
            scene.mood(FAILS);
            let _ = now(limiter.charge("ada", 20));
            let _ = now(limiter.charge("bob", 7));
            scene.mood(mood);
            scene.advance(2);
            let _ = now(limiter.peek("eve"));
            tokio::task::yield_now().await;
            assert_eq!(scene.store.status().debts == 0, is_out, "they are on their way");
            let _ = now(limiter.reset("ada"));
            assert_eq!(admitted(&limiter, "ada", 10), 10);
            tokio::task::yield_now().await;
            scene.mood(WORKS);
            scene.advance(20);
            let _ = now(limiter.peek("eve"));
            tokio::task::yield_now().await;
            assert_eq!(now(limiter.peek("ada")).remaining(), 90, "{on_outage:?} {mood}");
            assert_eq!(now(limiter.peek("bob")).remaining(), 93, "{on_outage:?} {mood}: it was not reset");
        }
    }
}

/// It owed under the policy that was gone, whose keys had moved, and nothing of it was charged.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_out_its_deadline_owes_under_the_policy_in_force() {
    for on_outage in [OnOutage::Local, OnOutage::Deny] {
        let scene = Scene::new(|builder| builder.deadline(Duration::from_millis(50)));
        let limiter = scene.limiter(on_outage);
        scene.mood(HANGS);
        let charged = tokio::spawn(limiter.charge("ada", 6).start());
        let checked = tokio::spawn(limiter.check("ada").cost(4).start());
        tokio::task::yield_now().await;
        let next = Policy::fixed_window("api", "80/h").on_outage(on_outage).build().unwrap();
        limiter.replace(next, Inherit::Spent).unwrap();
        let _ = charged.await.unwrap().unwrap();
        let spent = 6 + if checked.await.unwrap().unwrap().is_allowed() { 4 } else { 0 };
        scene.mood(WORKS);
        scene.advance(2);
        for _ in 0..3 {
            let _ = now(limiter.peek("eve"));
        }
        tokio::task::yield_now().await;
        assert_eq!(now(limiter.peek("ada")).remaining(), 80 - spent, "{on_outage:?}");
    }
}

/// A cost that did not fit the share was once not noted at all.
#[test]
fn a_key_that_has_spent_more_than_a_share_at_once_has_none_left_in_an_outage() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    assert!(now(limiter.check("ada").cost(60)).is_allowed());
    assert!(now(limiter.charge("bob", 60)).is_allowed());
    assert!(now(limiter.check("eve").cost(20)).is_allowed());
    assert!(now(limiter.check("eve").cost(10)).is_allowed());
    scene.mood(FAILS);
    assert_eq!(["ada", "bob", "eve"].map(|key| admitted(&limiter, key, 9)), [0, 0, 0]);
}
