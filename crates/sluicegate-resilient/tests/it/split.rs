//! A store of several parts of which some fail: its other parts go on to decide exactly, and only the rest is the fallback's.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::{Inherit, Turn};
use sluicegate_core::limiter::{change_all, check_all};
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Event, Limiters, Mode, PreparedPolicy};
use sluicegate_core::{
    ConfigError, Decision, Key, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store, StoreError,
};
use sluicegate_resilient::Resilient;
use sluicegate_resilient::{BreakerSettings, BreakerState};
use sluicegate_tests::around::plain;
use sluicegate_tests::outages::{now, parts_by_number};
use sluicegate_tests::random::Random;

/// A memory store in 64 parts, each of which can be away: keys that are numbers live in that part.
struct Shards {
    memory: Arc<dyn Store>,
    away: AtomicU64,
    /// Whether it answers only in a moment.
    is_far: AtomicBool,
    /// Whether it does not answer at all.
    hangs: AtomicBool,
    calls: AtomicU32,
    /// The number of asks whose part was looked up.
    looked_up: AtomicU32,
    limiters: Limiters,
}

impl Store for Shards {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        self.memory.open(policy, replaces)
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.hangs.load(Ordering::Relaxed) {
            drop(self.memory.decide(asks));
            return DecisionFuture::pending(pending());
        }
        let away = parts_by_number(asks) & self.away.load(Ordering::Relaxed);
        let answer = match away {
            0 => self.memory.decide(asks),
            _ => DecisionFuture::ready(Err(
                StoreError::new(StoreErrorKind::Unavailable).in_part(away.trailing_zeros() as usize)
            )),
        };
        match self.is_far.load(Ordering::Relaxed) {
            true => DecisionFuture::pending(async {
                tokio::task::yield_now().await;
                answer.await
            }),
            false => answer,
        }
    }

    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        self.looked_up.fetch_add(1, Ordering::Relaxed);
        parts_by_number(asks)
    }
}

/// A user whose part is away, and an address whose part is not.
const USER: u64 = 3;
const ADDRESS: u64 = 4;

struct Scene {
    shards: Arc<Shards>,
    store: Resilient,
    clock: ManualClock,
    /// By which the fallback decides: a day ahead.
    ahead: ManualClock,
}

impl Scene {
    fn new() -> Self {
        let (clock, ahead) = (ManualClock::new(), ManualClock::new());
        clock.set(Duration::from_secs(1_800_000_000));
        ahead.set(Duration::from_secs(1_800_086_400));
        let memory = |clock: &ManualClock| MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let shards = Arc::new(Shards {
            memory: memory(&clock).into(),
            away: AtomicU64::new(0),
            is_far: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            looked_up: AtomicU32::new(0),
            limiters: Limiters::default(),
        });
        let store = Resilient::builder(Arc::clone(&shards) as Arc<dyn Store>);
        let store = store.fallback(memory(&ahead)).clock(clock.clone()).replicas(4);
        let store = store.breaker(BreakerSettings::new().ramp(Duration::ZERO)).build().unwrap();
        Self { shards, store, clock, ahead }
    }

    /// Takes these parts away, and only these.
    fn away(&self, parts: impl IntoIterator<Item = u64>) {
        let bits = parts.into_iter().fold(0, |bits, part| bits | 1 << part);
        self.shards.away.store(bits, Ordering::Relaxed);
    }

    fn calls(&self) -> u32 {
        self.shards.calls.swap(0, Ordering::Relaxed)
    }

    fn advance(&self, span: Duration) {
        self.clock.advance(span);
        self.ahead.advance(span);
    }

    fn window(&self, name: &str, quota: &str, on_outage: OnOutage) -> RateLimiter {
        Policy::fixed_window(name, quota).on_outage(on_outage).on(&self.store).unwrap()
    }

    /// A hundred for the user, and a hundred for the address.
    fn both(&self) -> Both {
        Both {
            user: self.window("user", "100/h", OnOutage::Local),
            address: self.window("address", "100/h", OnOutage::Local),
        }
    }
}

struct Both {
    user: RateLimiter,
    address: RateLimiter,
}

impl Both {
    fn ask(&self, cost: u64, mode: Mode) -> DecisionFuture {
        let (user, address) = (Key::from(USER), Key::from(ADDRESS));
        check_all([
            self.address.check(&address).cost(cost).mode(mode),
            self.user.check(&user).cost(cost).mode(mode),
        ])
    }

    fn check(&self) -> Decision {
        now(self.ask(1, Mode::Spend))
    }

    /// What the store says that is left to the address.
    fn left(&self) -> u64 {
        let decision = now(self.address.peek(ADDRESS));
        assert_eq!(decision.decided_by(), DecidedBy::Store);
        decision.remaining()
    }

    /// What the fallback says that is left to the user, while that part is away.
    fn left_here(&self) -> u64 {
        let decision = now(self.user.peek(USER));
        assert_eq!(decision.decided_by(), DecidedBy::Fallback);
        decision.remaining()
    }
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.quotas().iter().map(|status| status.remaining()).collect()
}

#[test]
fn only_asks_of_the_part_that_is_away_are_left_to_the_fallback() {
    let scene = Scene::new();
    let both = scene.both();
    assert_eq!(both.check().decided_by(), DecidedBy::Store);
    scene.away([USER]);
    for spent in 2..=25 {
        let decision = both.check();
        assert!(decision.is_allowed());
        assert_eq!(decision.decided_by(), DecidedBy::Fallback);
        assert_eq!(remaining(&decision), [100 - spent, 25 - spent], "in the order of the asks");
        assert_eq!(both.left(), 100 - spent);
    }
    let refused = both.check();
    assert_eq!((refused.outcome(), refused.decided_by()), (Outcome::Denied, DecidedBy::Fallback));
    assert_eq!(refused.deciding().policy_index(), 1);
    assert_eq!(remaining(&refused), [75, 0], "where the address stands is still told");
    assert_eq!(both.left(), 75, "what is refused has spent nothing");
    assert!(now(both.address.check(ADDRESS)).is_allowed());
}

#[test]
fn what_the_fallback_has_spent_is_given_back_when_the_store_refuses() {
    let scene = Scene::new();
    let both = Both { address: scene.window("few", "5/h", OnOutage::Local), ..scene.both() };
    scene.away([USER]);
    for _ in 0..5 {
        assert!(both.check().is_allowed());
    }
    for _ in 0..20 {
        let refused = both.check();
        assert_eq!((refused.outcome(), refused.deciding().policy_index()), (Outcome::Denied, 0));
        assert_eq!(remaining(&refused), [0, 20]);
    }
    assert_eq!(both.left_here(), 20);
    assert_eq!(now(both.ask(6, Mode::Spend)).outcome(), Outcome::Impossible);
    assert_eq!(both.left_here(), 20);
}

#[test]
fn a_part_that_fails_costs_a_second_call_until_it_is_left_alone() {
    let scene = Scene::new();
    let both = scene.both();
    scene.away([USER]);
    for _ in 0..5 {
        assert!(both.check().is_allowed());
        assert_eq!(scene.calls(), 2);
    }
    assert_eq!(scene.store.status().breaker, BreakerState::Open);
    assert!(both.check().is_allowed());
    assert_eq!(scene.calls(), 1, "its breaker is open, so that the store is asked about the address alone");
    let status = scene.store.status();
    assert_eq!((status.unavailable, status.fallback_decisions, status.debts), (5, 6, 1));
}

#[tokio::test]
async fn what_the_fallback_let_pass_is_charged_to_its_part_alone() {
    let scene = Scene::new();
    let both = scene.both();
    scene.away([USER]);
    for _ in 0..10 {
        assert!(both.check().is_allowed());
    }
    scene.away([]);
    scene.advance(Duration::from_secs(2));
    for _ in 0..3 {
        now(both.user.peek(USER));
    }
    tokio::task::yield_now().await;
    let user = now(both.user.peek(USER));
    assert_eq!((user.decided_by(), user.remaining()), (DecidedBy::Store, 90));
    assert_eq!((both.left(), scene.store.status().debts), (90, 0));
}

/// Once all of them were taken out and put back ten times a second, and each time an event was told.
#[tokio::test]
async fn debts_to_a_part_that_is_away_are_left_alone_and_those_to_others_are_charged() {
    let scene = Scene::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    plain(&scene.store).listen(Arc::new(move |event: &Event<'_>| {
        if let Event::Settled { charged, left } = event {
            hears.lock().unwrap().push((*charged, *left));
        }
    }));
    let limiter = scene.window("api", "100/h", OnOutage::Local);
    // Keys that are no numbers live in the first part.
    scene.away([0, USER]);
    let invented = || (0..500_u64).map(|key| format!("user-{key}"));
    assert!(invented().all(|key| now(limiter.check(key)).is_allowed()));
    (0..5).for_each(|_| drop(now(limiter.check(USER))));
    let answered = async || {
        now(limiter.peek(ADDRESS));
        tokio::task::yield_now().await;
        scene.advance(Duration::from_secs(1));
    };
    scene.shards.looked_up.store(0, Ordering::Relaxed);
    for _ in 0..100 {
        answered().await;
    }
    assert_eq!(scene.shards.looked_up.load(Ordering::Relaxed), 100, "of each request, and of no debt");
    assert_eq!((scene.store.status().debts, heard.lock().unwrap().len()), (501, 0));
    scene.away([0]);
    (0..3).for_each(|_| drop(now(limiter.peek(USER))));
    answered().await;
    assert_eq!((scene.store.status().debts, now(limiter.peek(USER)).remaining()), (500, 95));
    assert!(now(limiter.refund("user-7", 1)).is_allowed(), "given back before it is charged");
    let policy = Policy::fixed_window("api", "100/h").hidden().build().unwrap();
    limiter.replace(policy, Inherit::AsIs).unwrap();
    scene.away([]);
    scene.advance(Duration::from_secs(2));
    (0..3).for_each(|_| drop(now(limiter.peek("user-0"))));
    answered().await;
    assert_eq!(*heard.lock().unwrap(), [(1, 500), (499, 0)], "at the first answer of a part that is back");
    for (key, name) in invented().enumerate() {
        assert_eq!(now(limiter.peek(name)).remaining(), if key == 7 { 100 } else { 99 });
    }
}

#[test]
fn a_policy_that_denies_in_an_outage_refuses_for_the_part_that_is_away_only() {
    let scene = Scene::new();
    let both = Both { user: scene.window("strict", "100/h", OnOutage::Deny), ..scene.both() };
    scene.away([USER]);
    for _ in 0..8 {
        let refused = both.check();
        assert_eq!((refused.outcome(), refused.decided_by()), (Outcome::Denied, DecidedBy::Outage));
        assert_eq!((refused.deciding().policy_index(), remaining(&refused)), (1, vec![100, 0]));
    }
    assert_eq!(both.left(), 100);
    // It does not matter what it says where its part answers.
    scene.away([ADDRESS]);
    scene.advance(Duration::from_secs(2));
    let allowed = both.check();
    assert_eq!((allowed.outcome(), allowed.decided_by()), (Outcome::Allowed, DecidedBy::Fallback));
}

#[test]
fn a_policy_that_lets_pass_in_an_outage_leaves_the_decision_to_the_store() {
    let scene = Scene::new();
    let both = Both {
        user: scene.window("lax", "2/h", OnOutage::Allow),
        address: scene.window("few", "7/h", OnOutage::Deny),
    };
    scene.away([USER]);
    for left in (0..7).rev() {
        let allowed = both.check();
        assert_eq!((allowed.outcome(), allowed.decided_by()), (Outcome::Allowed, DecidedBy::Store));
        assert_eq!(remaining(&allowed), [left]);
    }
    assert_eq!(both.check().outcome(), Outcome::Denied);
    assert_eq!(scene.store.status().debts, 0, "nobody counts what passes uncounted");
}

#[test]
fn charges_and_refunds_reach_each_part_once_whatever_becomes_of_the_other() {
    let scene = Scene::new();
    let both = scene.both();
    let (user, address) = (Key::from(USER), Key::from(ADDRESS));
    scene.away([USER]);
    for calls in 1..=8_u64 {
        let charged = now(change_all([both.address.charge(&address, 2), both.user.charge(&user, 2)]));
        assert_eq!(remaining(&charged), [100 - 2 * calls, 25 - 2 * calls]);
        assert_eq!(both.left(), 100 - 2 * calls);
    }
    let error = now_error(change_all([both.address.reset(&address), both.user.reset(&user)]));
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "whoever resets a key has to know that it is not");
}

#[test]
fn what_passes_uncounted_is_left_out_beside_what_is_counted() {
    let scene = Scene::new();
    let both = Both { user: scene.window("lax", "100/h", OnOutage::Allow), ..scene.both() };
    let (user, address) = (Key::from(USER), Key::from(ADDRESS));
    scene.away([USER]);
    let refunds = || change_all([both.address.refund(&address, 0), both.user.refund(&user, 0)]);
    let told = now(refunds());
    assert_eq!((told.decided_by(), remaining(&told)), (DecidedBy::Store, vec![100]));
    scene.away([USER, ADDRESS]);
    let told = now(refunds());
    assert_eq!((told.decided_by(), remaining(&told)), (DecidedBy::Fallback, vec![25]));
}

fn now_error(answer: impl IntoFuture<IntoFuture = DecisionFuture>) -> StoreError {
    answer.into_future().now().expect("nothing here has to be waited for").unwrap_err()
}

/// The receipt of each ask is that of whoever decided it, and by its clock.
#[tokio::test]
async fn what_was_spent_in_two_places_is_given_back_in_both() {
    let scene = Scene::new();
    let both = Both {
        user: Policy::gcra("user", "100/h").refunds().on(&scene.store).unwrap(),
        address: Policy::gcra("address", "100/h").refunds().on(&scene.store).unwrap(),
    };
    scene.away([USER]);
    let mut decision = now(both.ask(10, Mode::Spend));
    let mut receipts = [0, 1].map(|ask| decision.take_receipt(ask).unwrap());
    assert_eq!(
        receipts.each_ref().map(|receipt| receipt.decided_by()),
        [DecidedBy::Store, DecidedBy::Fallback]
    );
    assert_eq!(
        receipts.each_ref().map(|receipt| receipt.at_us()),
        [scene.clock.now_us(), scene.ahead.now_us()]
    );
    let [of_address, of_user] = &mut receipts;
    let (user, address) = (Key::from(USER), Key::from(ADDRESS));
    let refunded = now(change_all([
        both.address.refund(&address, 4).of(of_address),
        both.user.refund(&user, 4).of(of_user),
    ]));
    assert_eq!(remaining(&refunded), [94, 25 - 6]);
    scene.away([]);
    scene.advance(Duration::from_secs(2));
    for _ in 0..3 {
        now(both.user.peek(USER));
    }
    tokio::task::yield_now().await;
    assert_eq!((now(both.user.peek(USER)).remaining(), both.left()), (94, 94), "six are owed, and charged");
    assert_eq!(now(both.user.refund(USER, 4).of(of_user)).remaining(), 94, "what was owed is paid");
}

#[test]
fn a_peek_spends_nothing_in_either_place() {
    let scene = Scene::new();
    let both = scene.both();
    scene.away([USER]);
    for _ in 0..7 {
        let look = now(both.ask(5, Mode::Peek));
        assert_eq!((look.outcome(), remaining(&look)), (Outcome::Allowed, vec![100, 25]));
    }
    assert_eq!((both.left(), both.left_here(), scene.store.status().debts), (100, 25, 0));
}

/// One unit of each at once, and the store gives turns.
fn waiting(scene: &Scene) -> Both {
    Both {
        user: scene.window("user", "100/h", OnOutage::Local),
        address: Policy::gcra("address", "1/min burst 1").on(&scene.store).unwrap(),
    }
}

const LONGEST: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_store_gives_is_waited_for_and_given_back_with_what_the_fallback_spent() {
    let scene = Scene::new();
    let both = waiting(&scene);
    scene.away([USER]);
    assert!(both.check().is_allowed());
    let decision = now(both.ask(1, Mode::Reserve { longest: LONGEST }));
    assert_eq!((decision.delay(), decision.decided_by()), (Duration::from_secs(60), DecidedBy::Fallback));
    assert_eq!(both.left_here(), 23);
    let limits = [(both.address.clone(), Key::from(ADDRESS), 1), (both.user.clone(), Key::from(USER), 1)];
    let turn = Turn::new(decision, limits.clone());
    drop(turn);
    assert_eq!(both.left_here(), 24);
    assert_eq!(scene.store.status().debts, 1);
    let again = now(both.ask(1, Mode::Reserve { longest: LONGEST }));
    assert_eq!(again.delay(), Duration::from_secs(60), "the store has taken the turn back");
    assert!(Turn::new(again, limits).await.is_allowed());
    assert_eq!(both.left_here(), 23);
}

#[test]
fn the_fallback_lets_nothing_wait_beside_the_store() {
    let scene = Scene::new();
    for (name, policy) in
        [("a", Policy::gcra("a", "4/min burst 1")), ("b", Policy::leaky_queue("b", "4/min burst 9"))]
    {
        let user = policy.on(&scene.store).unwrap();
        let both = Both { user, address: scene.window(&format!("address-{name}"), "100/h", OnOutage::Local) };
        scene.away([USER]);
        assert!(now(both.ask(1, Mode::Reserve { longest: LONGEST })).is_allowed());
        let refused = now(both.ask(1, Mode::Reserve { longest: LONGEST }));
        assert_eq!(refused.outcome(), Outcome::Denied, "{name}");
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(60)), "{name}: one a minute is its share");
        assert_eq!(both.left(), 99, "{name}");
    }
}

#[test]
fn several_parts_may_be_away_and_all_of_them() {
    let scene = Scene::new();
    let limiter = scene.window("api", "100/h", OnOutage::Local);
    let keys = [1_u64, 2, 3, 4].map(Key::from);
    let check = || now(check_all(keys.iter().map(|key| limiter.check(key))));
    scene.away([1, 3]);
    for _ in 0..12 {
        assert_eq!((check().outcome(), check().decided_by()), (Outcome::Allowed, DecidedBy::Fallback));
    }
    // The first five met the first of the two that are away, and then the second one, and were the fallback's as a whole.
    assert_eq!(remaining(&check()), [0, 80, 0, 80]);
    scene.away([1, 2, 3, 4]);
    for _ in 0..12 {
        let refused = check();
        assert_eq!((refused.outcome(), refused.decided_by()), (Outcome::Denied, DecidedBy::Fallback));
    }
    assert_eq!(remaining(&check()), [0, 0, 0, 0], "the fallback was told of what the store let pass");
    scene.away([]);
    assert_eq!(now(limiter.peek(2_u64)).decided_by(), DecidedBy::Fallback, "its pause is not over");
}

/// A second part that fails on the way leaves nothing spent twice.
#[test]
fn a_part_that_fails_after_the_fallback_has_spent_leaves_all_of_it_to_the_fallback() {
    let scene = Scene::new();
    let both = scene.both();
    scene.away([USER]);
    for _ in 0..5 {
        assert!(both.check().is_allowed());
    }
    scene.away([USER, ADDRESS]);
    let decision = both.check();
    assert_eq!((decision.outcome(), decision.decided_by()), (Outcome::Allowed, DecidedBy::Fallback));
    assert_eq!(remaining(&decision), [25 - 6, 25 - 6]);
    assert_eq!(both.left_here(), 25 - 6);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_later_is_joined_in_the_same_way() {
    let scene = Scene::new();
    let both = scene.both();
    scene.shards.is_far.store(true, Ordering::Relaxed);
    scene.away([USER]);
    for spent in 1..=25 {
        assert_eq!(remaining(&both.ask(1, Mode::Spend).await.unwrap()), [100 - spent, 25 - spent]);
    }
    assert_eq!(remaining(&both.ask(1, Mode::Spend).await.unwrap()), [75, 0]);
    let (user, address) = (Key::from(USER), Key::from(ADDRESS));
    let changes = [both.address.charge(&address, 2), both.user.charge(&user, 2)];
    assert_eq!(remaining(&change_all(changes).await.unwrap()), [73, 0]);
}

/// Nobody waits for the store any longer: what the fallback let pass may have gone on, so it is owed.
#[tokio::test(start_paused = true)]
async fn a_decision_that_is_dropped_half_way_is_owed() {
    let scene = Scene::new();
    let both = scene.both();
    scene.away([USER]);
    for _ in 0..5 {
        assert!(both.check().is_allowed());
    }
    scene.shards.hangs.store(true, Ordering::Relaxed);
    drop(both.ask(7, Mode::Spend));
    assert_eq!(both.left_here(), 25 - 12);
    scene.shards.hangs.store(false, Ordering::Relaxed);
    scene.away([]);
    scene.advance(Duration::from_secs(2));
    for _ in 0..3 {
        now(both.user.peek(USER));
    }
    tokio::task::yield_now().await;
    assert_eq!(now(both.user.peek(USER)).remaining(), 100 - 12);
}

/// Whatever fails and comes back in whatever order, the parts that answer admit what the policy says and not a unit more.
#[tokio::test(start_paused = true)]
async fn the_store_is_never_over_while_its_parts_come_and_go() {
    for seed in 0..30_u64 {
        let scene = Scene::new();
        let limiter = scene.window("api", "20/h", OnOutage::Local);
        let keys = [1_u64, 2, 3].map(Key::from);
        let (mut random, mut admitted) = (Random::new(seed), [0_u64; 3]);
        let mut below = |bound: u64| random.below(bound);
        for _ in 0..200 {
            match below(8) {
                0 => scene.away((1..4).filter(|_| below(3) == 0).collect::<Vec<_>>()),
                1 => scene.shards.is_far.store(below(2) == 0, Ordering::Relaxed),
                2 => scene.clock.advance(Duration::from_millis(below(1_000))),
                _ => {}
            }
            let which: Vec<usize> = (0..3).filter(|_| below(2) == 0).collect();
            if which.is_empty() {
                continue;
            }
            let before = scene.shards.away.load(Ordering::Relaxed);
            let decision = check_all(which.iter().map(|key| limiter.check(&keys[*key]))).await.unwrap();
            assert_eq!(decision.quotas().len(), which.len(), "{decision:?}");
            if decision.is_allowed() && before == 0 && decision.decided_by() == DecidedBy::Store {
                which.iter().for_each(|key| admitted[*key] += 1);
            }
            tokio::task::yield_now().await;
        }
        assert!(admitted.iter().all(|units| *units <= 20), "seed {seed}: {admitted:?}");
    }
}

/// The debt was once all that it had asked for, as far as the key had spent that much before.
#[tokio::test]
async fn as_much_as_there_is_owes_what_the_fallback_has_granted_beside_the_store() {
    let scene = Scene::new();
    let both = scene.both();
    assert!(now(both.user.check(USER).cost(20)).is_allowed());
    scene.away([USER]);
    let (user, address) = (Key::from(USER), Key::from(ADDRESS));
    let taken = now(check_all([both.address.check(&address), both.user.check(&user).up_to(90)]));
    assert_eq!(taken.quotas()[1].spent(), 5, "the rest of the share");
    scene.away([]);
    scene.advance(Duration::from_secs(2));
    for _ in 0..3 {
        now(both.user.peek(USER));
    }
    tokio::task::yield_now().await;
    assert_eq!(now(both.user.peek(USER)).remaining(), 75);
}
