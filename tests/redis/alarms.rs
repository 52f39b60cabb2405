//! Alarms of instances that share a Redis: none tightens by what it sees alone.

use std::net::Ipv4Addr;
use std::time::Duration;

use sluicegate::observed::Observed;
use sluicegate_core::clock::{Clock, ManualClock, SystemClock};
use sluicegate_core::limiter::Overrides;
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
    async fn start(name: &str, clock: &ManualClock) -> Self {
        let redis = connected(patient("alarms").clock(clock.clone()), &standalone().url()).await;
        let store = Observed::named(name, &redis).unwrap();
        let login = Policy::gcra("login", "10/min").tighten("3/min burst 10", "30min").on(&store).unwrap();
        Self { redis, store, login }
    }

    /// One minute of twenty people, and of as many addresses that were never seen before.
    async fn serve(&self, clock: &ManualClock, begin: u64, attackers: u32) {
        let people = (0..20).map(|person| Ipv4Addr::new(192, person, 2, 7));
        let addresses = (0..attackers).map(|index| Ipv4Addr::from(0xCB00_0000 + index * 65_537));
        for (index, address) in addresses.chain(people).enumerate() {
            clock.set(Duration::from_micros(begin + index as u64 * 97_000));
            self.login.check(address).await.unwrap();
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
    let [one, two] = [Instance::start("alarm-one", &clock).await, Instance::start("alarm-two", &clock).await];
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

async fn eventually(holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it holds in the end");
}
