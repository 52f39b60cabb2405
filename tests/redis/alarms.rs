//! Alarms of instances that share a Redis: none tightens by what it sees alone.

use std::net::Ipv4Addr;
use std::time::Duration;

use sluicegate::observed::Observed;
use sluicegate_core::clock::{Clock, ManualClock, SystemClock};
use sluicegate_core::limiter::Overrides;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::AlarmCause;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::standalone;

use crate::support::{connected, patient};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

struct Instance {
    redis: RedisStore,
    store: Observed,
    login: RateLimiter,
}

impl Instance {
    async fn start(
        name: &str,
        clock: &ManualClock,
        tighten: impl Fn(PolicyBuilder) -> PolicyBuilder,
    ) -> Self {
        let redis = connected(
            patient(&name.replace("-one", "").replace("-two", "")).clock(clock.clone()),
            &standalone().url(),
        )
        .await;
        let store = Observed::named(name, &redis).unwrap();
        let login = tighten(Policy::gcra("login", "10/min")).on(&store).unwrap();
        Self { redis, store, login }
    }

    /// One minute of twenty people, and of as many addresses that were never seen before.
    async fn serve(&self, clock: &ManualClock, begin: u64, attackers: u32) {
        let people = (0..20).map(|person| Ipv4Addr::new(192, person, 2, 7));
        let addresses = (0..attackers).map(|index| Ipv4Addr::from(0xCB00_0000 + index * 65_537));
        for (index, address) in addresses.chain(people).enumerate() {
            clock.set(Duration::from_micros(begin + index as u64 * 97_000));
            let _ = self.login.check(address).await.unwrap();
        }
    }

    fn notices(&self) -> bool {
        let policies = self.store.snapshot().policies;
        let login = policies.iter().find(|of| of.policy.name() == "login");
        login.is_some_and(|login| login.alarms.iter().any(|alarm| alarm.cause == AlarmCause::NewKeys))
    }

    /// Whether it has tightened, after everything that is under way.
    async fn is_tight(&self) -> bool {
        Overrides::of(&self.store).read().await.unwrap();
        self.login.policy().to_string() == "login: 3/min burst 10 (gcra)"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_tighten_together_and_one_does_not_alone() {
    let (clock, begin) = (ManualClock::new(), SystemClock::new().now_us());
    clock.set(Duration::from_micros(begin));
    let tighten = |policy: PolicyBuilder| policy.tighten("3/min burst 10", "30min");
    let one = Instance::start("alarm-one", &clock, tighten).await;
    let two = Instance::start("alarm-two", &clock, tighten).await;
    let attack = begin + 25 * MINUTE;
    for minute in (begin..attack).step_by(usize::try_from(MINUTE).unwrap()) {
        one.serve(&clock, minute, 0).await;
        two.serve(&clock, minute, 0).await;
    }
    assert!(!one.notices() && !two.notices());
    one.serve(&clock, attack, 300).await;
    assert!(one.notices() && !two.notices());
    // The vote is under way.
    let votes = Policy::sliding_log("sluicegate-alarms", "100/h").hidden().on(&one.redis).unwrap();
    eventually(async || votes.peek("login").await.unwrap().remaining() == 99).await;
    assert!(!one.is_tight().await && !two.is_tight().await, "one is not enough");
    two.serve(&clock, attack + 30 * SECOND, 300).await;
    assert!(two.notices());
    eventually(async || one.is_tight().await && two.is_tight().await).await;
    assert_eq!(Overrides::of(&one.store).list()[0].by(), "alarm");
}

/// The people of both instances keep what they had on both.
#[tokio::test(flavor = "multi_thread")]
async fn two_instances_tighten_for_keys_that_are_new_to_each() {
    let (clock, begin) = (ManualClock::new(), SystemClock::new().now_us());
    clock.set(Duration::from_micros(begin));
    let tighten = |policy: PolicyBuilder| policy.tighten("3/min burst 3", "30min").tighten_new_keys();
    let one = Instance::start("alarm-new-one", &clock, tighten).await;
    let two = Instance::start("alarm-new-two", &clock, tighten).await;
    let attack = begin + 70 * MINUTE;
    for minute in (begin..attack).step_by(usize::try_from(MINUTE).unwrap()) {
        one.serve(&clock, minute, 0).await;
        two.serve(&clock, minute, 0).await;
    }
    one.serve(&clock, attack, 300).await;
    let person = Ipv4Addr::new(192, 7, 2, 7);
    let stranger = Ipv4Addr::new(203, 0, 113, 9);
    let capacity = async |of: &Instance, key| of.login.peek(key).await.unwrap().capacity();
    assert_eq!(capacity(&two, stranger).await, 10, "one is not enough");
    two.serve(&clock, attack + 30 * SECOND, 300).await;
    for instance in [&one, &two] {
        eventually(async || {
            Overrides::of(&instance.store).read().await.unwrap();
            capacity(instance, stranger).await == 3
        })
        .await;
        assert_eq!(capacity(instance, person).await, 10);
        assert_eq!(instance.login.policy().to_string(), "login: 10/min (gcra)");
    }
    let over = Overrides::of(&two.store).list().remove(0);
    assert_eq!(over.to_string(), "login for new keys: 3/min, by alarm");
    // One button ends it for both.
    Overrides::of(&two.store).withdraw("login", over.version(), "ada").await.unwrap();
    for instance in [&one, &two] {
        Overrides::of(&instance.store).read().await.unwrap();
        assert_eq!(capacity(instance, stranger).await, 10);
    }
}

async fn eventually(holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it holds in the end");
}
