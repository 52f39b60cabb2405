//! A store of several parts of which some fail: requests that need none of these are decided exactly, and the others by the fallback.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::{change_all, check_all};
use sluicegate_core::store::{
    Ask, Capabilities, DecidedBy, DecisionFuture, Event, Limiters, Mode, Parts, PreparedPolicy,
};
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

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::new().parts(self)
    }
}

impl Parts for Shards {
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
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.quotas().iter().map(|status| status.remaining()).collect()
}

#[tokio::test]
async fn a_request_that_needs_a_part_that_is_away_is_the_fallback_s_as_a_whole_and_is_charged_to_each_part() {
    let scene = Scene::new();
    let both = scene.both();
    assert_eq!(both.check().decided_by(), DecidedBy::Store);
    scene.away([USER]);
    scene.calls();
    for spent in 2..=25 {
        let decision = both.check();
        assert_eq!((decision.outcome(), decision.decided_by()), (Outcome::Allowed, DecidedBy::Fallback));
        assert_eq!(remaining(&decision), [25 - spent, 25 - spent]);
    }
    assert_eq!(scene.calls(), 5, "then its breaker is open");
    assert_eq!(both.check().outcome(), Outcome::Denied);
    assert_eq!((scene.store.status().breaker, scene.store.status().debts), (BreakerState::Open, 2));
    // The part that answers decides its own requests, and learns what was spent.
    assert_eq!(both.left(), 99);
    tokio::task::yield_now().await;
    assert_eq!((both.left(), scene.store.status().debts), (75, 1));
    scene.away([]);
    scene.advance(Duration::from_secs(2));
    for _ in 0..3 {
        let _ = now(both.user.peek(USER));
    }
    tokio::task::yield_now().await;
    let user = now(both.user.peek(USER));
    assert_eq!((user.decided_by(), user.remaining()), (DecidedBy::Store, 75));
    assert_eq!((both.left(), scene.store.status().debts), (75, 0));
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
        let _ = now(limiter.peek(ADDRESS));
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
