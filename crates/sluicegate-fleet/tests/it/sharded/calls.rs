//! Every call across shards: with several limits, costs per quota, refunds, turns, charges, outages, dropped futures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_conformance::Conformance;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::{change_all, check_all};
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Mode};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Key, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store};
use sluicegate_fleet::Sharded;
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::{answer, store};

use crate::support::failing;

/// A policy of 25 units an hour in four shards, 6, 6, 6 and 7.
fn hot(memory: &MemoryStore) -> RateLimiter {
    let store = Sharded::builder(memory, 4).policy("hot").build().unwrap();
    Policy::gcra("hot", "25/h").on(&store).unwrap()
}

fn left(limiter: &RateLimiter) -> u64 {
    answer(limiter.peek("k")).remaining()
}

#[tokio::test]
async fn it_passes_what_the_suite_says_of_several_limits() {
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().clock(clock.clone()).log_entries(1 << 16).build().unwrap();
    let suite = Conformance::new(Sharded::builder(&memory, 4).above(4).build().unwrap(), clock);
    suite.all_or_nothing().await;
}

#[tokio::test]
async fn what_is_kept_whole_passes_the_whole_suite() {
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().clock(clock.clone()).log_entries(1 << 16).build().unwrap();
    let suite = Conformance::new(Sharded::builder(&memory, 4).policy("another").build().unwrap(), clock);
    suite.worked_examples().await;
    suite.all_or_nothing().await;
    suite.modes().await;
    suite.same_decisions_as_memory(Duration::ZERO, 1, 20).await;
    suite.same_refunds_as_memory(1, 20).await;
    suite.same_replacements_as_memory(1, 20).await;
}

#[test]
fn a_peek_and_a_refusal_say_what_all_shards_have() {
    let (memory, _) = store();
    let hot = hot(&memory);
    assert!(answer(hot.check("k").cost(7)).is_allowed());
    let look = answer(hot.peek("k").cost(7));
    assert_eq!((look.outcome(), look.capacity(), look.remaining()), (Outcome::Denied, 25, 18));
    assert!(answer(hot.peek("k").cost(6)).is_allowed());
    assert_eq!(answer(hot.check("k").cost(8)).outcome(), Outcome::Impossible, "more than any shard has");
    assert_eq!(answer(hot.check("k").cost(0)).outcome(), Outcome::Allowed);
    assert_eq!(left(&hot), 18);
    assert!(answer(hot.reset("k")).is_allowed());
    assert_eq!(left(&hot), 25);
}

#[test]
fn several_limits_spend_together_or_not_at_all() {
    let (memory, _) = store();
    let store: Arc<dyn Store> =
        Sharded::builder(&memory, 4).policy("hot").policy("warm").build().unwrap().into();
    let on = |policy: Policy| RateLimiter::new(Arc::clone(&store), policy).unwrap();
    let [hot, warm] = ["hot", "warm"].map(|name| on(Policy::gcra(name, "25/h").build().unwrap()));
    let user = on(Policy::gcra("user", "3/h").build().unwrap());
    let key = Key::from("k");
    let check = |cost| answer(check_all([hot.check(&key).cost(cost), warm.check(&key), user.check(&key)]));
    assert!(check(7).is_allowed() && check(6).is_allowed());
    let refused = check(7);
    let stands: Vec<u64> = refused.quotas().iter().map(|status| status.remaining()).collect();
    assert_eq!((refused.outcome(), refused.deciding().policy_index()), (Outcome::Denied, 0));
    assert_eq!((stands[0], stands[2]), (12, 1));
    assert!(check(6).is_allowed());
    assert_eq!((left(&hot), left(&warm), left(&user)), (6, 22, 0));
    let refused = check(0);
    assert_eq!(refused.deciding().policy_index(), 2, "the user has none left: {refused:?}");
    assert_eq!(left(&warm), 22);
}

#[test]
fn two_asks_for_one_bucket_see_each_other() {
    let (memory, _) = store();
    let hot = hot(&memory);
    let key = Key::from("k");
    let both = |costs: [u64; 2]| answer(check_all(costs.map(|cost| hot.check(&key).cost(cost))));
    assert!(both([4, 3]).is_allowed());
    assert!(answer(hot.reset("k")).is_allowed());
    let peeks = [6, 7].map(|cost| hot.peek(&key).cost(cost));
    assert!(answer(check_all(peeks)).is_allowed(), "a look takes nothing from the next");
    let refused = both([4, 4]);
    assert!(!refused.is_allowed(), "{refused:?}");
    assert_eq!(left(&hot), 25);
}

#[test]
fn each_quota_has_its_own_cost_and_its_own_shares() {
    let (memory, _) = store();
    let store: Arc<dyn Store> = Sharded::builder(&memory, 3).policy("hot").build().unwrap().into();
    let policy = Policy::gcra("hot", "25/h").and("100/d").named("day").build().unwrap();
    let opened = store.open(Arc::new(policy), None).unwrap();
    let key = Key::from("k");
    let ask = |mode, costs: [u64; 2]| {
        let decision = store.decide(&[Ask::new(&opened, key.as_ref(), 0, mode).with_costs(&costs)]);
        let decision = answer(decision);
        (decision.is_allowed(), decision.quotas().iter().map(|status| status.spent()).collect::<Vec<_>>())
    };
    assert_eq!(ask(Mode::Spend, [9, 34]), (true, vec![9, 34]));
    assert!(!ask(Mode::Spend, [8, 34]).0);
    assert_eq!(ask(Mode::Spend, [8, 33]), (true, vec![8, 33]));
    assert!(!ask(Mode::Spend, [0, 34]).0);
}

#[test]
fn a_charge_goes_where_there_is_room_or_is_a_debt_of_all_shards() {
    let (memory, clock) = store();
    let hot = hot(&memory);
    assert!(answer(hot.charge("k", 7)).is_allowed());
    assert_eq!(left(&hot), 18, "in one shard");
    assert!(answer(hot.reset("k")).is_allowed());
    for _ in 0..2 {
        assert_eq!(answer(hot.charge("k", 25)).quotas()[0].spent(), 25);
        assert_eq!(left(&hot), 0);
    }
    // One hour gives 25 back, which is what is owed.
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(left(&hot), 0);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(left(&hot), 25);
}

#[test]
fn a_refund_by_hand_goes_to_the_shard_that_has_spent_most() {
    let (memory, _) = store();
    let hot = hot(&memory);
    assert!(answer(hot.check("k").cost(3)).is_allowed());
    assert!(answer(hot.refund("k", 2)).is_allowed());
    assert_eq!(left(&hot), 24);
    assert!(answer(hot.refund("k", 9)).is_allowed());
    assert_eq!(left(&hot), 25, "never better than at rest");
}

#[test]
fn estimates_of_several_limits_are_settled_in_one_call() {
    let (memory, _) = store();
    let store: Arc<dyn Store> = Sharded::builder(&memory, 4).policy("hot").build().unwrap().into();
    let on = |policy: Policy| RateLimiter::new(Arc::clone(&store), policy).unwrap();
    let hot = on(Policy::gcra("hot", "25/h").refunds().build().unwrap());
    let user = on(Policy::gcra("user", "30/h").refunds().build().unwrap());
    let key = Key::from("k");
    let mut decision = answer(check_all([hot.check(&key).cost(6), user.check(&key).cost(6)]));
    let [mut of_hot, mut of_user] = [0, 1].map(|ask| decision.take_receipt(ask).unwrap());
    let mut later = of_hot.split(4).unwrap();
    let settled = change_all([hot.refund(&key, 3).of(&mut of_hot), user.refund(&key, 5).of(&mut of_user)]);
    assert!(answer(settled).is_allowed());
    assert_eq!((left(&hot), left(&user)), (22, 29));
    assert_eq!((of_hot.cost(), of_user.cost(), later.cost()), (1, 1, 2));
    assert!(answer(hot.refund(&key, 100).of(&mut later)).is_allowed());
    assert!(answer(hot.refund(&key, 100).of(&mut of_hot)).is_allowed());
    assert!(answer(hot.refund(&key, 100).of(&mut of_hot)).is_allowed());
    assert_eq!((left(&hot), later.cost(), of_hot.cost()), (25, 0, 0));
}

#[test]
fn a_turn_is_that_of_the_shard_with_the_shortest_wait_and_can_be_given_up() {
    let (memory, clock) = store();
    let store = Sharded::builder(&memory, 2).policy("calls").build().unwrap();
    let calls = Policy::gcra("calls", "4/s burst 2").wait_up_to(Duration::from_secs(1)).on(&store).unwrap();
    let delays: Vec<u128> = (0..6).map(|_| answer(calls.check("k")).delay().as_millis()).collect();
    // Each of the two gives one turn in half a second.
    assert_eq!(delays, [0, 0, 500, 500, 1_000, 1_000]);
    let refused = answer(calls.check("k"));
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(500)));
    clock.advance(Duration::from_millis(500));
    assert_eq!(answer(calls.check("k")).delay(), Duration::from_secs(1));
    let never = answer(calls.check("k").cost(3));
    assert_eq!(never.outcome(), Outcome::Impossible);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_go_in_turn_and_those_that_leave_give_their_turn_back() {
    let memory = sluicegate_tests::memory::paused_store();
    let store = Sharded::builder(&memory, 2).policy("calls").build().unwrap();
    let calls = Policy::gcra("calls", "2/s burst 2").on(&store).unwrap();
    let longest = Duration::from_secs(60);
    let start = tokio::time::Instant::now();
    for turn in 0..6_u32 {
        assert!(calls.check("k").acquire(longest).await.unwrap().is_allowed());
        assert_eq!(start.elapsed(), Duration::from_secs(u64::from(turn / 2)), "turn {turn}");
    }
    let left = tokio::time::timeout(Duration::from_millis(10), calls.check("k").acquire(longest)).await;
    assert!(left.is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(calls.peek("k").await.unwrap().remaining(), 2);
}

/// Each shard takes its last turn back, and those before it as the last ones then: also where the store answers later, and nobody
/// comes any more.
#[tokio::test(start_paused = true)]
async fn turns_of_all_shards_go_back_when_all_who_wait_leave_at_once() {
    let memory = sluicegate_tests::memory::paused_store();
    let store = Sharded::builder(sluicegate_tests::around::late(&memory), 2).policy("calls").build().unwrap();
    let calls = Policy::gcra("calls", "2/h burst 2").on(&store).unwrap();
    let longest = Duration::from_secs(86_400 * 30);
    for _ in 0..2 {
        assert!(calls.check("k").acquire(longest).await.unwrap().delay().is_zero());
    }
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let calls = calls.clone();
        waiting.spawn(async move { calls.check("k").acquire(longest).await });
    }
    while calls.waiting() < 20 {
        tokio::task::yield_now().await;
    }
    // Half of them in each shard, or nearly so, although all have looked before any of them had its turn: once all stood in one.
    let longest = calls.peek("k").await.unwrap().reset_after().as_secs() / 3_600;
    assert!((11..=15).contains(&longest), "{longest} h");
    waiting.shutdown().await;
    assert!(calls.store().limiters().turns_returned(Duration::from_secs(60)).await);
    assert!(calls.peek("k").await.unwrap().reset_after() <= Duration::from_secs(3_600));
}

#[test]
fn a_lease_comes_from_the_shard_of_its_request_and_goes_back_there() {
    let (memory, _) = store();
    let store: Arc<dyn Store> = Sharded::builder(&memory, 2).policy("hot").build().unwrap().into();
    let policy = Arc::new(Policy::gcra("hot", "20/s").build().unwrap());
    let opened = store.open(Arc::clone(&policy), None).unwrap();
    let key = Key::from("k");
    let ask = |cost, mode| Ask::new(&opened, key.as_ref(), cost, mode);
    let mut decision = answer(store.decide(&[ask(1, Mode::Spend), ask(50, Mode::Lease)]));
    assert_eq!(decision.quotas().iter().map(|status| status.spent()).collect::<Vec<_>>(), [1, 9]);
    let mut lease = decision.take_receipt(1).unwrap();
    // Ten units a second drain from that shard.
    assert_eq!(lease.lasts(&policy, 0), Duration::from_millis(900));
    let _spent = lease.split(5).unwrap();
    assert!(answer(store.decide(&[ask(5, Mode::Refund).of(&lease)])).is_allowed());
    assert_eq!(answer(store.decide(&[ask(1, Mode::Peek)])).remaining(), 15);
    // More requests find the rest in both shards; then there is nothing to lease.
    assert!([10, 5].iter().all(|cost| answer(store.decide(&[ask(*cost, Mode::Spend)])).is_allowed()));
    assert_eq!(answer(store.decide(&[ask(9, Mode::Lease)])).granted(), Some(0));
}

/// Once each quota got the highest number of units.
#[test]
fn what_is_left_of_a_lease_goes_back_to_each_quota_for_itself() {
    let (memory, _) = store();
    let store: Arc<dyn Store> = Sharded::builder(&memory, 2).policy("hot").build().unwrap().into();
    let policy = Policy::gcra("hot", "20/s").and("200/h").build().unwrap();
    let opened = store.open(Arc::new(policy), None).unwrap();
    let key = Key::from("k");
    let ask = |cost, mode| Ask::new(&opened, key.as_ref(), cost, mode);
    let mut decision = answer(store.decide(&[ask(1, Mode::Spend), ask(9, Mode::Lease)]));
    let lease = decision.take_receipt(1).unwrap();
    drop(answer(store.decide(&[ask(0, Mode::Refund).with_costs(&[2, 7]).of(&lease)])));
    let look = answer(store.decide(&[ask(1, Mode::Peek)]));
    let left: Vec<u64> = look.quotas().iter().map(|status| status.remaining()).collect();
    assert_eq!(left, [20 - 10 + 2, 200 - 10 + 7]);
}

#[tokio::test]
async fn in_an_outage_the_policy_decides_and_what_passed_is_owed_by_the_shards() {
    let (memory, clock) = store();
    let (failing, fails) = failing(&memory);
    let sharded = Sharded::builder(failing, 4).policy("hot").policy("closed").build().unwrap();
    let resilient = Resilient::builder(&sharded).clock(clock.clone()).build().unwrap();
    let hot = Policy::gcra("hot", "25/h").on(&resilient).unwrap();
    let closed = Policy::gcra("closed", "25/h").on_outage(OnOutage::Deny).on(&resilient).unwrap();
    assert!(hot.check("k").cost(6).await.unwrap().is_allowed());
    fails.store(true, Ordering::Relaxed);
    let local = hot.check("k").cost(10).await.unwrap();
    assert_eq!((local.is_allowed(), local.decided_by(), local.remaining()), (true, DecidedBy::Fallback, 9));
    assert!(!closed.check("k").await.unwrap().is_allowed());
    fails.store(false, Ordering::Relaxed);
    clock.advance(Duration::from_secs(60));
    // The first call pays what is owed.
    let _ = hot.peek("k").await.unwrap();
    tokio::task::yield_now().await;
    // Ten fit into no shard: two of them are a debt of the one that had no units left.
    assert_eq!(hot.peek("k").await.unwrap().remaining(), 11);
}

#[tokio::test]
async fn a_request_whose_caller_leaves_is_decided_to_its_end() {
    let (memory, _) = store();
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let slow = around(&memory, move |within: &Within, asks: &[Ask<'_>]| {
        count.fetch_add(1, Ordering::Relaxed);
        let answer = within.decide(asks);
        DecisionFuture::pending(async {
            tokio::task::yield_now().await;
            answer.await
        })
    });
    let store = Sharded::builder(slow, 4).policy("hot").build().unwrap();
    let hot = Policy::gcra("hot", "25/h").on(&store).unwrap();
    drop(hot.check("k").cost(7).start());
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    // One shard, and unless it was that of seven units a look at all of them, and that shard.
    assert!([1, 3].contains(&calls.load(Ordering::Relaxed)));
    assert_eq!(hot.peek("k").await.unwrap().remaining(), 18);
}

#[tokio::test]
async fn a_suspension_holds_for_the_whole_key_and_counts_each_refusal_once() {
    let (memory, clock) = store();
    let store: Arc<dyn Store> = Sharded::builder(&memory, 4).policy("hot").build().unwrap().into();
    let policy = Policy::gcra("hot", "25/h").suspend(3, "1min", "30min").build().unwrap();
    let hot = RateLimiter::new(store, policy).unwrap();
    for cost in [7, 6, 6, 6] {
        assert!(hot.check("k").cost(cost).await.unwrap().is_allowed());
    }
    for _ in 0..2 {
        assert_eq!(hot.check("k").await.unwrap().outcome(), Outcome::Denied);
    }
    assert_eq!(hot.check("other").await.unwrap().outcome(), Outcome::Allowed);
    clock.advance(Duration::from_secs(1));
    let outcomes = [hot.check("k").await.unwrap().outcome(), hot.check("k").await.unwrap().outcome()];
    assert_eq!(outcomes[1], Outcome::Suspended, "{outcomes:?}");
    clock.advance(Duration::from_secs(29 * 60));
    assert_eq!(hot.check("k").await.unwrap().outcome(), Outcome::Suspended, "whatever has come back");
}
