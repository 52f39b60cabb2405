//! What several hash slots of a Cluster, and one that is on its way to another node, mean for a decision.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::Value;
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::check_all;
use sluicegate_core::store::{DecidedBy, Mode};
use sluicegate_core::{Key, Policy, Quota, RateLimiter, Store};
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::deployments::Cluster;
use sluicegate_tests::servers::{self, Server, eventually};

use crate::support::{GoesOn, connected, patient};

/// Nothing refills during a test, and no window ends.
fn quota(limit: u64) -> Quota {
    Quota::new(limit, Duration::from_secs(300 * 86_400))
}

async fn store(cluster: &Cluster, prefix: &str, deadline: Duration) -> RedisStore {
    connected(RedisStore::builder().prefix(prefix).deadline(deadline), &cluster.url()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_always_happens_does_not_when_a_spend_in_another_slot_is_refused() {
    let store = store(Cluster::shared(), "certain", Duration::from_secs(20)).await;
    let (user, address) = (Key::from("ada"), Key::from("198.51.100.7"));
    let narrow = RateLimiter::new(&store, Policy::gcra("narrow", quota(1)).build().unwrap()).unwrap();
    for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let policy = Policy::builder(format!("wide-{index}"), algorithm, quota(9)).build().unwrap();
        let wide = RateLimiter::new(&store, policy).unwrap();
        let _ = wide.check(&address).cost(3).await.unwrap();
        for mode in [Mode::Charge, Mode::Refund, Mode::Reset] {
            let both = || {
                check_all([wide.check(&address).cost(2).mode(mode), narrow.check(&user).mode(Mode::Spend)])
            };
            let _ = narrow.charge(&user, 1).await.unwrap();
            let left = wide.peek(&address).await.unwrap().remaining();
            let refused = both().await.unwrap();
            assert!(!refused.is_allowed(), "{algorithm}, {mode:?}");
            assert_eq!(
                refused.quotas()[0].remaining(),
                left,
                "{algorithm}, {mode:?}: it says where it stands"
            );
            assert_eq!(wide.peek(&address).await.unwrap().remaining(), left, "{algorithm}, {mode:?}");
            let _ = narrow.reset(&user).await.unwrap();
            let granted = both().await.unwrap();
            assert!(granted.is_allowed(), "{algorithm}, {mode:?}");
            let now = match mode {
                Mode::Charge => left - 2,
                Mode::Reset => 9,
                _ => left + 2,
            };
            assert_eq!(granted.quotas()[0].remaining(), now, "{algorithm}, {mode:?}");
        }
    }
}

/// What another slot's refusal gives back may be of a window that has ended: the next one's units are not its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_given_back_for_a_refusal_in_another_slot_is_of_the_window_that_it_was_spent_in() {
    let cluster = Cluster::shared();
    let clocked = async |clock: Arc<dyn Clock>| {
        let store = connected(patient("ended").clock(clock), &cluster.url()).await;
        let minute = |name: &str, limit: &str| {
            RateLimiter::new(&store, Policy::fixed_window(name, limit).build().unwrap()).unwrap()
        };
        (minute("wide", "9/min"), minute("narrow", "1/min"))
    };
    let from_to = [59, 60].map(|second| Duration::from_secs(1_800_000_000 + second));
    let (user, address) = (Key::from("ada"), Key::from("198.51.100.7"));
    let clock = ManualClock::new();
    clock.set(from_to[1]);
    let (wide, narrow) = clocked(Arc::new(clock)).await;
    let (runtime, next) = (tokio::runtime::Handle::current(), (wide, narrow.clone()));
    let (user_then, address_then) = (user.clone(), address.clone());
    // Between the spend in the narrow one's slot and that in the wide one's, another spends all of the next window.
    let before = move || {
        let (runtime, next) = (runtime.clone(), next.clone());
        let (user, address) = (user_then.clone(), address_then.clone());
        let spend = move || {
            runtime.block_on(async { (next.1.check(&user).await, next.0.check(&address).cost(9).await) })
        };
        let (narrow, wide) = std::thread::spawn(spend).join().unwrap();
        assert!(narrow.unwrap().is_allowed() && wide.unwrap().is_allowed());
    };
    let goes_on = Arc::new(GoesOn::new(from_to, before));
    let (wide_then, narrow_then) = clocked(Arc::clone(&goes_on) as Arc<dyn Clock>).await;
    goes_on.begin();
    let refused = check_all([wide_then.check(&address).cost(2), narrow_then.check(&user)]).await.unwrap();
    assert!(!refused.is_allowed());
    eventually("the refund is sent", || goes_on.reads() > 4);
    // Behind the refund, on the same connection.
    assert_eq!(narrow_then.peek(&user).await.unwrap().remaining(), 0);
    assert_eq!(narrow.peek(&user).await.unwrap().remaining(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_a_part_that_the_keys_of_the_hanging_node_share() {
    let cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]);
    let handle = store(&cluster, "rl", Duration::from_millis(200)).await;
    let limiter = Policy::gcra("login", quota(100)).on(&handle).unwrap();
    let store: Arc<dyn Store> = handle.into();
    let opened = store.open(limiter.policy(), None).unwrap();
    let part = |key: u64| {
        let key = Key::from(key);
        store.parts(&[sluicegate_core::store::Ask::new(&opened, key.as_ref(), 1, Mode::Spend)])
    };
    let all = (0..2_000).fold(0, |all, key| all | part(key));
    assert_eq!(all, u64::MAX, "the parts are all of the slots");
    let hanging = cluster.nodes.iter().find(|node| is_primary(node)).unwrap();
    hanging.signal("STOP");
    let mut failed = 0;
    for key in 0..40_u64 {
        if let Err(error) = limiter.charge(key, 1).await {
            assert_eq!(1 << error.part(), part(key), "{error:?}");
            failed += u32::from(error.kind() == StoreErrorKind::Timeout);
        }
    }
    assert!(failed > 0, "a third of the keys were on that node");
    hanging.signal("CONT");
}

fn is_primary(node: &Server) -> bool {
    let role: Vec<Value> = node.run("ROLE");
    matches!(&role[0], Value::BulkString(role) if role == b"master")
}

/// Whether it is a replica of the node on that port.
fn follows(node: &Server, port: u16) -> bool {
    let role: Vec<Value> = node.run("ROLE");
    matches!(&role[..], [Value::BulkString(role), _, Value::Int(master), ..]
        if role == b"slave" && *master == i64::from(port))
}

/// Seen: the whole of such a request was left to the fallback, the limits on nodes that work too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_without_a_node_leaves_only_its_own_asks_to_the_fallback() {
    let cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]);
    let redis = store(&cluster, "rl", Duration::from_millis(200)).await;
    let resilient = Resilient::builder(&redis).build().unwrap();
    let probe = Policy::gcra("probe", quota(1_000_000)).on(&redis).unwrap();
    let [user, address] =
        [("user", 1_000), ("address", 20)].map(|(name, limit)| Policy::gcra(name, quota(limit)));
    let of_redis = address.clone().on(&redis).unwrap();
    let [user, address] = [user, address].map(|policy| policy.on(&resilient).unwrap());
    // Nobody can take the place of a node that hangs with its replica.
    let gone = cluster.nodes.iter().find(|node| is_primary(node)).unwrap();
    let replicas = cluster.nodes.iter().filter(|node| follows(node, gone.port()));
    let gone: Vec<&Server> = replicas.chain([gone]).collect();
    gone.iter().for_each(|node| node.signal("STOP"));
    let (mut away, mut answers) = (None, None);
    for key in 0..200_u64 {
        match probe.charge(key, 0).await {
            Ok(_) => answers = answers.or(Some(Key::from(key))),
            Err(_) => away = away.or(Some(Key::from(key))),
        }
        if away.is_some() && answers.is_some() {
            break;
        }
    }
    let (away, answers) = (away.expect("a third of them"), answers.expect("two thirds of them"));
    let mut admitted = 0;
    for _ in 0..40 {
        let decision = check_all([address.check(&answers), user.check(&away)]).await.unwrap();
        admitted += u64::from(decision.is_allowed());
        assert_eq!(decision.decided_by(), DecidedBy::Fallback);
        assert_eq!(decision.quotas().len(), 2, "{decision:?}");
        assert_eq!(decision.quotas()[0].remaining(), 20 - admitted, "as Redis says: {decision:?}");
        assert_eq!(decision.quotas()[1].remaining(), 1_000 - admitted, "as the fallback says: {decision:?}");
    }
    assert_eq!(admitted, 20);
    // Such requests also settle what the node that answers has not been told yet.
    for _ in 0..600 {
        if of_redis.peek(&answers).await.unwrap().remaining() == 0 {
            break;
        }
        assert!(!check_all([address.check(&answers), user.check(&away)]).await.unwrap().is_allowed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(of_redis.peek(&answers).await.unwrap().remaining(), 0);
    gone.iter().for_each(|node| node.signal("CONT"));
}

/// Moves a slot as `redis-cli --cluster reshard` does, but a key at a time, and with time to be asked before and after each.
fn migrate(slot: u64, from: &Server, to: &Server, primaries: &[&Server], pause: Duration) {
    let id = |node: &Server| node.run::<String>("CLUSTER MYID");
    let (from_id, to_id) = (id(from), id(to));
    to.run::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    from.run::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    std::thread::sleep(pause);
    loop {
        let keys: Vec<String> = from.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
        let Some(key) = keys.first() else { break };
        // A key that has expired in between is no key to be moved.
        from.run::<String>(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()));
        std::thread::sleep(pause);
    }
    to.run::<()>(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    for node in primaries {
        node.run::<()>(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    }
}

/// Three keys that live in one slot although nothing in them says so, and the slot.
fn keys_of_one_slot(store: &RedisStore, policy: &str, node: &Server) -> ([u64; 3], u64) {
    let mut slots: HashMap<u64, Vec<u64>> = HashMap::new();
    for key in 0.. {
        let slot: u64 = node.run(&format!("CLUSTER KEYSLOT {}", store.key_name(policy, key)));
        let keys = slots.entry(slot).or_default();
        keys.push(key);
        if let Ok(keys) = <[u64; 3]>::try_from(keys.as_slice()) {
            return (keys, slot);
        }
    }
    unreachable!("there are more keys than slots")
}

/// While a slot moves, a key of it is on the one node or on the other. Calls that are shared are for keys of both then. Nothing is lost
/// on the way, and nothing counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_that_moves_under_load_admits_exactly_what_it_says() {
    const LIMIT: u64 = 10_000_000;
    let cluster = Cluster::start(&[]);
    let store = store(&cluster, "rl", Duration::from_secs(2)).await;
    let policy = Policy::gcra("moves", quota(LIMIT)).and(quota(LIMIT * 2)).named("second").build().unwrap();
    let limiter = RateLimiter::new(&store, policy).unwrap();
    let (keys, slot) = keys_of_one_slot(&store, "moves", &cluster.nodes[0]);
    for key in keys {
        let _ = limiter.check(key).await.unwrap();
    }
    let primaries: Vec<&Server> = cluster.nodes.iter().filter(|node| is_primary(node)).collect();
    let names = |node: &Server| node.run::<Vec<String>>("KEYS *:moves*");
    let owner = primaries.iter().position(|node| !names(node).is_empty()).unwrap();
    let (from, to) = (primaries[owner], primaries[(owner + 1) % 3]);

    let (admitted, failed) =
        (Arc::new([(); 3].map(|()| AtomicU64::new(1))), Arc::new(Mutex::new(Vec::new())));
    let over = Arc::new(AtomicBool::new(false));
    let calls = || {
        let calls = primaries.iter().map(|node| servers::script_calls(&mut node.admin()));
        calls.sum::<u64>()
    };
    let before = calls();
    let callers: Vec<_> = (0..12)
        .map(|caller| {
            let (limiter, over) = (limiter.clone(), Arc::clone(&over));
            let (admitted, failed) = (Arc::clone(&admitted), Arc::clone(&failed));
            tokio::spawn(async move {
                // Relaxed: the counts are read when all have ended.
                while !over.load(Ordering::Relaxed) {
                    match limiter.check(keys[caller % 3]).await {
                        Ok(decision) if decision.decided_by() != DecidedBy::Store => {
                            failed.lock().unwrap().push(format!("{decision:?}"));
                        }
                        Ok(decision) => {
                            let units = u64::from(decision.is_allowed());
                            admitted[caller % 3].fetch_add(units, Ordering::Relaxed);
                        }
                        Err(error) => failed.lock().unwrap().push(format!("{error:?}")),
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(50));
    for (from, to) in [(from, to), (to, from), (from, to)] {
        migrate(slot, from, to, &primaries, Duration::from_millis(50));
    }
    eventually("the slot has moved", || names(to).len() == 3 && names(from).is_empty());
    // However slow the machine is: most of the calls were decided.
    eventually("calls go on", || {
        let failed = failed.lock().unwrap().len() as u64;
        admitted.iter().all(|admitted| admitted.load(Ordering::Relaxed) > 100 + failed * 10)
    });
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let calls = calls() - before;
    // What is left is what was not admitted.
    let deadline = Instant::now() + Duration::from_secs(20);
    for (key, admitted) in keys.into_iter().zip(&*admitted) {
        let left = loop {
            match limiter.peek(key).await {
                Ok(decision) if decision.decided_by() == DecidedBy::Store => break decision.remaining(),
                other => assert!(Instant::now() < deadline, "{other:?}"),
            }
        };
        let failed = failed.lock().unwrap();
        assert_eq!(admitted.load(Ordering::Relaxed) + left, LIMIT, "{} failed: {failed:?}", failed.len());
    }
    let decisions: u64 = admitted.iter().map(|admitted| admitted.load(Ordering::Relaxed)).sum();
    assert!(calls < decisions, "{calls} calls for {decisions} decisions");
}

/// A slot that has only been looked at counts a refusal by another slot afterwards; nobody waits for that.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_slot_refuses_counts_under_a_policy_that_says_so() {
    let store = store(Cluster::shared(), "rejected", Duration::from_secs(20)).await;
    let (user, address) = (Key::from("ada"), Key::from("198.51.100.7"));
    let narrow = RateLimiter::new(&store, Policy::gcra("narrow", quota(1)).build().unwrap()).unwrap();
    let _ = narrow.charge(&user, 1).await.unwrap();
    for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let policy = |name: &str| Policy::builder(format!("{name}-{index}"), algorithm, quota(4));
        let counts = RateLimiter::new(&store, policy("counts").count_rejected().build().unwrap()).unwrap();
        let plain = RateLimiter::new(&store, policy("plain").build().unwrap()).unwrap();
        for left in [2, 0, 0] {
            let all = [counts.check(&address).cost(2), narrow.check(&user), plain.check(&address)];
            assert!(!check_all(all).await.unwrap().is_allowed(), "{algorithm}");
            let deadline = Instant::now() + Duration::from_secs(20);
            while counts.peek(&address).await.unwrap().remaining() != left {
                assert!(Instant::now() < deadline, "{algorithm}: {left} are left in the end");
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(plain.peek(&address).await.unwrap().remaining(), 4, "{algorithm}");
    }
}
