//! Overrides of operators, on several instances of a service, each with a runtime of its own.

use std::time::Duration;

use redis::Commands as _;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::{OverrideErrorKind, Overrides};
use sluicegate_core::policy::{Override, OverrideBuilder};
use sluicegate_core::{Algorithm, Policy, Quota, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::Cluster;
use sluicegate_tests::servers::skewed::Skewed;
use sluicegate_tests::servers::{Server, eventually};
use sluicegate_tests::time::on_the_hour;
use tokio::runtime::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3_600);
const KEY: &str = "rl:3:{probe}:overrides";

struct Instance {
    runtime: Runtime,
    store: RedisStore,
    limiter: RateLimiter,
}

impl Instance {
    /// An instance on this clock, or on the server's, whose code says this. The policy is opened before anything is known of the server.
    fn start(url: &str, clock: Option<&ManualClock>, algorithm: Algorithm, quota: &str) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let entered = runtime.enter();
        let mut builder = RedisStore::builder().deadline(Duration::from_secs(5));
        if let Some(clock) = clock {
            builder = builder.clock(clock.clone());
        }
        let store = builder.connect(url).unwrap();
        let limiter = Policy::builder("p", algorithm, quota).on(&store).unwrap();
        drop(entered);
        let instance = Self { runtime, store, limiter };
        instance.connected();
        instance
    }

    fn connected(&self) {
        self.runtime.block_on(self.store.connected(Duration::from_secs(20))).expect("the server is up");
    }

    fn overrides(&self) -> Overrides {
        Overrides::of(&self.store)
    }

    fn put(&self, change: OverrideBuilder) -> std::sync::Arc<Override> {
        self.runtime.block_on(self.overrides().put(change)).unwrap()
    }

    /// What the next decision is by.
    fn decides_by(&self) -> u64 {
        self.runtime.block_on(self.limiter.peek("k").start()).unwrap().capacity()
    }

    fn limit(&self) -> u64 {
        self.limiter.policy().quotas()[0].quota().limit()
    }
}

/// Four instances, of which each has other code.
fn four(url: &str, clock: Option<&ManualClock>) -> Vec<Instance> {
    [
        (Algorithm::Gcra, "5/h"),
        (Algorithm::SlidingCounter, "6/h"),
        (Algorithm::SlidingLog, "7/h"),
        (Algorithm::Gcra, "5/h burst 3"),
    ]
    .map(|(algorithm, quota)| Instance::start(url, clock, algorithm, quota))
    .into()
}

fn nine() -> OverrideBuilder {
    Override::builder("p", "ada").quota("9/h")
}

fn all_have(instances: &[Instance], limits: &[u64]) {
    eventually("all instances have the policy", || {
        instances.iter().map(Instance::limit).eq(limits.iter().copied().cycle().take(instances.len()))
    });
}

#[test]
fn an_override_reaches_four_instances_within_five_seconds_and_is_gone_after_its_hour() {
    let (server, clock) = (Server::start(), on_the_hour());
    let instances = four(&server.url(), Some(&clock));
    assert!(instances[0].overrides().are_shared());
    let standing = instances[0].put(nine());
    assert_eq!(instances[0].decides_by(), 9, "where it was put, it holds at once");
    // Fifty rests are five seconds, and longer where the machine has no time for those that read it either.
    let reached = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        instances.iter().all(|instance| instance.limit() == 9)
    });
    assert!(reached, "an instance does without it");
    for instance in &instances {
        assert_eq!((instance.decides_by(), instance.overrides().list()), (9, vec![standing.clone()]));
    }
    // The others had spent under other rules: it counts on.
    assert!(
        instances[1]
            .runtime
            .block_on(instances[1].limiter.check("spent").cost(4).start())
            .unwrap()
            .is_allowed()
    );
    let left = |instance: &Instance| {
        instance.runtime.block_on(instance.limiter.peek("spent").start()).unwrap().remaining()
    };
    assert!(instances.iter().map(left).all(|left| left <= 5));

    // One that starts has it at once, although it opened the policy before it knew.
    let fifth = Instance::start(&server.url(), Some(&clock), Algorithm::Gcra, "8/h");
    assert_eq!(fifth.decides_by(), 9);
    let opened = Policy::gcra("p2", "1/h").on(&fifth.store).unwrap();
    assert_eq!(opened.policy(), opened.own_policy());

    clock.advance(HOUR);
    let limits: Vec<_> = instances.iter().map(Instance::decides_by).collect();
    assert_eq!((limits, fifth.decides_by()), (vec![5, 6, 7, 3], 8));
}

#[test]
fn a_key_has_the_quotas_that_an_operator_has_given_it_on_four_instances_and_others_have_those_of_the_code() {
    let (server, clock) = (Server::start(), on_the_hour());
    let instances = four(&server.url(), Some(&clock));
    let standing = instances[0].put(nine().key("k"));
    eventually("all instances know the override", || {
        instances.iter().all(|instance| instance.overrides().list() == [standing.clone()])
    });
    let stored: Vec<u8> = server.admin().get(KEY).unwrap();
    assert!(
        !String::from_utf8_lossy(&stored).contains("9/h"),
        "an override is readable in Redis: {stored:?}"
    );
    let other = |instance: &Instance| {
        instance.runtime.block_on(instance.limiter.peek("other").start()).unwrap().capacity()
    };
    let capacities =
        || instances.iter().map(|instance| (instance.decides_by(), other(instance))).collect::<Vec<_>>();
    assert_eq!(capacities(), [(9, 5), (9, 6), (9, 7), (9, 3)]);
    clock.advance(HOUR);
    assert_eq!(capacities(), [(5, 5), (6, 6), (7, 7), (3, 3)]);
}

#[test]
fn a_flush_ends_no_override_and_brings_none_back() {
    let server = Server::start();
    let instances = four(&server.url(), None);
    let standing = instances[0].put(nine());
    all_have(&instances, &[9]);
    server.run::<()>("FLUSHALL");
    eventually("the override is written again", || server.admin().exists(KEY).unwrap());
    assert!(instances.iter().all(|instance| instance.limit() == 9));

    let withdrawn = instances[3].overrides();
    instances[3].runtime.block_on(withdrawn.withdraw("p", standing.version(), "bob")).unwrap();
    all_have(&instances, &[5, 6, 7, 5]);
    server.run::<()>("FLUSHALL");
    eventually("the withdrawal is written again", || server.admin().exists(KEY).unwrap());
    assert_eq!(Instance::start(&server.url(), None, Algorithm::Gcra, "8/h").limit(), 8);
}

#[test]
fn of_many_operators_at_once_one_puts_an_override_and_the_others_see_it() {
    let server = Server::start();
    let instances = four(&server.url(), None);
    let tasks: Vec<_> = (0..20_u64)
        .map(|number| {
            let instance = &instances[usize::try_from(number % 4).unwrap()];
            let overrides = instance.overrides();
            let change =
                Override::builder("p", format!("operator {number}")).quota(Quota::per_hour(10 + number));
            instance.runtime.spawn(async move { overrides.put(change).await })
        })
        .collect();
    let results: Vec<_> =
        tasks.into_iter().map(|task| instances[0].runtime.block_on(task).unwrap()).collect();
    let put: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(put.len(), 1, "{results:?}");
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!((error.kind(), error.standing()), (OverrideErrorKind::OutOfDate, Some(&**put[0])));
    }
    all_have(&instances, &[put[0].quotas()[0].limit()]);
}

#[test]
fn an_override_holds_on_a_cluster_whose_node_is_away() {
    let cluster = Cluster::start(&["--cluster-node-timeout", "60000"]);
    let instances: Vec<_> =
        ["5/h", "6/h"].map(|quota| Instance::start(&cluster.url(), None, Algorithm::Gcra, quota)).into();
    let standing = instances[0].put(nine());
    all_have(&instances, &[9]);
    let users: Vec<_> = (0..30_u64).collect();
    for user in &users {
        let decision = instances[1].runtime.block_on(instances[1].limiter.check(*user).start()).unwrap();
        assert_eq!(decision.capacity(), 9);
    }
    cluster.nodes.iter().for_each(|node| node.signal("STOP"));
    let error = instances[1].runtime.block_on(instances[1].overrides().read()).unwrap_err();
    assert_ne!(error.kind(), StoreErrorKind::Protocol);
    assert!(instances.iter().all(|instance| instance.limit() == 9));
    cluster.nodes.iter().for_each(|node| node.signal("CONT"));
    eventually("it can be withdrawn", || {
        let overrides = instances[1].overrides();
        let end = instances[1].runtime.block_on(overrides.withdraw("p", standing.version(), "bob"));
        end.is_ok() || end.is_err_and(|error| error.kind() == OverrideErrorKind::OutOfDate)
    });
    all_have(&instances, &[5, 6]);
}

/// The service runs on machines whose clocks are anywhere.
#[test]
fn an_override_ends_by_the_clock_of_the_server() {
    let skewed = Skewed::start();
    let server = &skewed.server;
    skewed.shift(7_200_000_000);
    let instance = Instance::start(&server.url(), None, Algorithm::Gcra, "5/h");
    let standing = instance.put(nine().lasting(Duration::from_millis(300)));
    let server_us = || {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut server.admin()).unwrap();
        seconds * 1_000_000 + micros
    };
    assert!(server_us().abs_diff(standing.until_us()) < 60_000_000, "it is the server's hour");
    eventually("it is over", || instance.limit() == 5);
    assert!(server_us() + 20_000 > standing.until_us(), "it has not ended before its time");
}

#[test]
fn what_is_not_ours_under_the_name_is_no_override_and_is_written_over() {
    let server = Server::start();
    for foreign in [
        format!("RPUSH {KEY} 1 2"),
        format!("SET {KEY} \u{1}garbage"),
        format!("SETRANGE {KEY} 0 \u{7f}\u{ff}"),
        format!("HSET {KEY} a b"),
    ] {
        server.run::<redis::Value>(&format!("DEL {KEY}"));
        server.run::<redis::Value>(&foreign);
        let instance = Instance::start(&server.url(), None, Algorithm::Gcra, "5/h");
        assert_eq!(instance.decides_by(), 5, "{foreign}");
        let standing = instance.put(nine());
        let ttl: i64 = server.run(&format!("TTL {KEY}"));
        assert!((3_600..=3_660).contains(&ttl), "{foreign}: {ttl} s");
        instance.runtime.block_on(instance.overrides().withdraw("p", standing.version(), "ada")).unwrap();
    }
}

/// The version is that of the code: of two rules with one version, neither is older.
#[test]
fn an_override_of_a_policy_with_a_version_is_what_all_instances_go_by() {
    let (server, clock) = (Server::start(), on_the_hour());
    let instances: Vec<_> =
        (0..2).map(|_| Instance::start(&server.url(), Some(&clock), Algorithm::Gcra, "5/h")).collect();
    let limiters: Vec<_> = instances
        .iter()
        .map(|instance| Policy::gcra("versioned", "100/h").version(3).on(&instance.store).unwrap())
        .collect();
    let check = |index: usize, cost: u64| {
        instances[index].runtime.block_on(limiters[index].check("k").cost(cost).start()).unwrap()
    };
    assert_eq!((check(0, 10).remaining(), check(1, 10).remaining()), (90, 80));
    instances[0].put(Override::builder("versioned", "ada").quota("30/h"));
    eventually("both have it", || limiters.iter().all(|limiter| limiter.policy() != limiter.own_policy()));
    assert_eq!((check(0, 5).remaining(), check(1, 4).remaining()), (5, 1));
    assert!(!check(0, 2).is_allowed());
    clock.advance(HOUR);
    let rested: Vec<_> = (0..2).map(|index| check(index, 1).capacity()).collect();
    assert_eq!(rested, [100, 100]);
}
