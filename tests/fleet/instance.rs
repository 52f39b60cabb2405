//! One instance of a service, in a process of its own, with its own caches and leases.
//!
//! It says on its standard output what it admits, as it admits it, so that this is known of an instance that is killed, too. By its
//! standard input it is told to reset a key, to replace its policy, and to close its stores; it ends with its input.

use std::collections::HashMap;
use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, Policy, Quota, RateLimiter, Store};
use sluicegate_fleet::{DenyCache, Leased};
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_tests::process::is_alone;
use sluicegate_tests::random::{Random, Zipf};

/// The variable that tells an instance what it is: words and their values.
pub(crate) const SETUP: &str = "SLUICEGATE_FLEET";

/// How long a tick of the load is.
const TICK: Duration = Duration::from_millis(4);

/// The stores of an instance that its policies go through, and what is closed in the end.
struct Stores {
    resilient: Resilient,
    leased: Option<Leased>,
    store: Arc<dyn Store>,
}

/// The process that the other tests start; by itself it has nothing to do.
#[test]
fn an_instance_serves_until_its_input_ends() {
    if !is_alone() {
        return;
    }
    let setup = std::env::var(SETUP).unwrap();
    let setup: HashMap<&str, &str> = setup.split(';').filter_map(|pair| pair.split_once('=')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let stores = Stores::connect(setup["url"], setup["wrap"]).await;
        let (algorithm, quota): (Algorithm, Quota) =
            (setup["algorithm"].parse().unwrap(), setup["quota"].parse().unwrap());
        let limiter = Policy::builder("shared", algorithm, quota).on(Arc::clone(&stores.store)).unwrap();
        println!("ready");
        let serves = Arc::new(AtomicBool::new(true));
        let (rate, keys) = (setup["rate"].parse().unwrap(), setup["keys"].parse().unwrap());
        let load = tokio::spawn(load(limiter.clone(), rate, keys, Arc::clone(&serves)));
        let (send, mut commands) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            stdin().lock().lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        while let Some(command) = commands.recv().await {
            match command.split_once(' ').unwrap_or((&command, "")) {
                ("reset", key) => drop(limiter.reset(key.parse::<u64>().unwrap()).await),
                ("replace", quota) => {
                    let next = Policy::builder("shared", algorithm, quota.parse::<Quota>().unwrap());
                    limiter.replace(next.build().unwrap(), Inherit::Spent).unwrap();
                }
                ("tasks", when) => {
                    let metrics = tokio::runtime::Handle::current().metrics();
                    println!("alive {when} {}", metrics.num_alive_tasks());
                }
                ("pause", _) => serves.store(false, Ordering::Relaxed),
                ("close", _) => {
                    serves.store(false, Ordering::Relaxed);
                    tokio::time::sleep(10 * TICK).await;
                    stores.close().await;
                }
                other => panic!("{other:?}"),
            }
            println!("done {command}");
        }
        load.abort();
    });
}

impl Stores {
    async fn connect(url: &str, wrap: &str) -> Self {
        let redis = RedisStore::connect(url).unwrap();
        redis.connected(Duration::from_secs(20)).await.unwrap();
        let resilient = Resilient::builder(&redis).replicas(4).build().unwrap();
        let mut store: Arc<dyn Store> = (&resilient).into();
        let leased = wrap.contains("leased").then(|| Leased::new(Arc::clone(&store)));
        if let Some(leased) = &leased {
            store = leased.into();
        }
        if wrap.contains("deny") {
            store = DenyCache::new(store).into();
        }
        Self { resilient, leased, store }
    }

    async fn close(&self) {
        if let Some(leased) = &self.leased {
            println!("held {}", leased.status().held);
            leased.close(Duration::from_secs(2)).await.unwrap();
        }
        println!("settled {}", self.resilient.close(Duration::from_secs(2)).await.is_ok());
    }
}

/// Requests that come by the clock, whatever becomes of those before.
async fn load(limiter: RateLimiter, rate: u64, keys: usize, serves: Arc<AtomicBool>) {
    let popularity = Zipf::new(keys, 1.0);
    let mut random = Random::new(std::process::id().into());
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut due = 0;
    loop {
        tick.tick().await;
        due += rate * u64::try_from(TICK.as_micros()).unwrap();
        let now = if serves.load(Ordering::Relaxed) { due / 1_000_000 } else { 0 };
        due %= 1_000_000;
        for _ in 0..now {
            let (key, limiter) = (popularity.draw(&mut random), limiter.clone());
            tokio::spawn(async move {
                let from_us = now_us();
                let decision = limiter.check(key as u64).await.unwrap();
                let word = if decision.is_allowed() { "allowed" } else { "refused" };
                println!("{word} {key} {from_us} {} {:?}", now_us(), decision.decided_by());
            });
        }
    }
}

/// By the clock that all processes of the machine share, and the server.
fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}
