//! Decisions in Redis, beside the least that any limiter there has to do: a script that gets one key and sets it again with
//! an expiry, on one multiplexed connection.
//!
//! One thread of ours asks, and a `redis-server` that is started for this answers; both on the same machine.

mod harness;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use sluicegate::algorithm::{Anchor, Refill};
use sluicegate::limiter::check_all;
use sluicegate::store::DecisionFuture;
use sluicegate::{Algorithm, Key, Policy, Quota, RateLimiter};
use sluicegate_redis::{RedisStore, RedisStoreBuilder};
use sluicegate_tests::servers::{self, Server};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::harness::{Aim, Bench, Row};

/// What a limiter has to do at least.
const MINIMAL: &str = "local old = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return old";

/// Keys, in turn.
const KEYS: u64 = 1_000;

fn main() -> ExitCode {
    let mut bench = Bench::from_args(
        "In Redis; the reference is a script of one GET and one SET on one multiplexed connection",
    );
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        bench.note("there is no redis-server here: nothing is measured");
        return bench.finish();
    }
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the machine can wait for sockets");
    let bed = Bed {
        server: &server,
        runtime: &runtime,
        store: connected(&server, &runtime, |store, url| store.connect(url)),
    };
    for (concurrency, aim) in [(1, 0.95), (16, 1.2), (64, 1.5), (256, 2.0)] {
        let limiter = bed.limiter("gcra", Algorithm::Gcra);
        bed.compare(
            &mut bench,
            &format!("GCRA, {concurrency} at a time"),
            [Aim::RatioAtLeast(aim), Aim::None],
            concurrency,
            &limiter,
            1,
        );
    }
    // One call, which looks at the key's suspension as well: at most twice the CPU time of Redis that the row without takes.
    let suspending = Policy::gcra("suspending", Quota::new(1_000_000, Duration::from_secs(60)));
    let suspending = suspending.suspend(100, "10min", "30min").on(&bed.store).expect("the quota is possible");
    let work = "GCRA that suspends keys, nobody suspended, 64 at a time";
    bed.compare(&mut bench, work, [Aim::None; 2], 64, &suspending, 1);
    let together = bed.limiter("together", Algorithm::Gcra);
    let work = "GCRA, 16 keys in one call, 1 at a time";
    bed.compare(&mut bench, work, [Aim::RatioAtLeast(2.0), Aim::None], 1, &together, 16);
    // Where Redis is busy all the time there is no aim: a script of one MGET and sixteen SETs, which decides nothing, comes
    // to 1.4 times the reference.
    bed.compare(&mut bench, "GCRA, 16 keys in one call, 16 at a time", [Aim::None; 2], 16, &together, 16);
    for (name, algorithm, cpu) in [
        ("fixed window", Algorithm::FixedWindow(Anchor::Epoch), Aim::Ratio(2.0)),
        ("token bucket, interval", Algorithm::TokenBucket(Refill::Interval), Aim::None),
        ("sliding counter", Algorithm::SlidingCounter, Aim::Ratio(2.0)),
        ("sliding log", Algorithm::SlidingLog, Aim::Ratio(3.0)),
    ] {
        let limiter = bed.limiter(&name.replace([' ', ','], "-"), algorithm);
        bed.compare(&mut bench, &format!("{name}, 64 at a time"), [Aim::None, cpu], 64, &limiter, 1);
    }
    let quota = |seconds| Quota::new(1_000_000, Duration::from_secs(seconds));
    let two = Policy::fixed_window("two-quotas", quota(60)).and(quota(3_600)).named("hour");
    let two = two.on(&bed.store).expect("the quotas are possible");
    let aims = [Aim::None, Aim::Ratio(3.5)];
    bed.compare(&mut bench, "two window quotas, 64 at a time", aims, 64, &two, 1);
    let (gcra, window) = (
        bed.limiter("of-two", Algorithm::Gcra),
        bed.limiter("of-both", Algorithm::FixedWindow(Anchor::Epoch)),
    );
    bed.compare_with(&mut bench, "GCRA and a window, two policies, 64 at a time", aims, 64, 1, move |key| {
        let key = Key::from(key);
        check_all([gcra.check(&key), window.check(&key)])
    });
    let config = deadpool_redis::Config::from_url(server.url());
    let pool = config.builder().ok().and_then(|builder| builder.max_size(16).build().ok());
    let pool = pool.expect("a pool without timeouts needs no runtime");
    let pooled = Bed { store: connected(&server, &runtime, |store, _| store.pool(pool)), ..bed };
    let limiter = pooled.limiter("pooled", Algorithm::Gcra);
    pooled.compare(&mut bench, "GCRA on a deadpool of 16, 64 at a time", [Aim::None; 2], 64, &limiter, 1);
    bytes_per_key(&mut bench, &bed);
    bench.finish()
}

fn connected(
    server: &Server,
    runtime: &Runtime,
    connect: impl FnOnce(RedisStoreBuilder, &str) -> Result<RedisStore, sluicegate::ConfigError>,
) -> RedisStore {
    runtime.block_on(async {
        let builder = RedisStore::builder().deadline(Duration::from_secs(20));
        let store = connect(builder, &server.url()).expect("the settings are possible");
        store.connected(Duration::from_secs(20)).await.expect("the server is up");
        store
    })
}

/// What a comparison is made on.
struct Bed<'a> {
    server: &'a Server,
    runtime: &'a Runtime,
    store: RedisStore,
}

/// What a side did in a slice.
struct Slice {
    per_second: f64,
    redis_us: f64,
    latencies_us: Vec<f64>,
}

impl Bed<'_> {
    /// A policy that allows all of a run.
    fn limiter(&self, name: &str, algorithm: Algorithm) -> RateLimiter {
        let limit = if algorithm == Algorithm::SlidingLog { 2_000 } else { 1_000_000 };
        let quota = Quota::new(limit, Duration::from_secs(60));
        Policy::builder(name, algorithm, quota).on(&self.store).expect("the quota is possible")
    }

    /// Compares decisions a second, and the CPU time that each takes of Redis.
    fn compare(
        &self,
        bench: &mut Bench,
        work: &str,
        aims: [Aim; 2],
        concurrency: usize,
        limiter: &RateLimiter,
        keys_per_call: usize,
    ) {
        let limiter = limiter.clone();
        self.compare_with(bench, work, aims, concurrency, keys_per_call, move |key| {
            if keys_per_call == 1 {
                return limiter.check(key).start();
            }
            let keys: Vec<_> = (0..keys_per_call as u64).map(|part| Key::from(key).and(part)).collect();
            check_all(keys.iter().map(|key| limiter.check(key)))
        });
    }

    fn compare_with(
        &self,
        bench: &mut Bench,
        work: &str,
        aims: [Aim; 2],
        concurrency: usize,
        keys_per_call: usize,
        ask: impl Fn(u64) -> DecisionFuture + Clone + Send + 'static,
    ) {
        if !bench.wants(work) {
            return;
        }
        let (rounds, slice) = bench.rounds();
        let connection = self.runtime.block_on(async {
            let client = redis::Client::open(self.server.url()).expect("the URL can be read");
            client.get_multiplexed_async_connection().await.expect("the server is up")
        });
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(MINIMAL).query(&mut self.server.admin());
        let digest: String = load.expect("it is a script");
        let ours = || {
            let ask = ask.clone();
            self.slice(concurrency, slice, keys_per_call, move |key| {
                let verdict = ask(key);
                async { assert!(verdict.await.expect("the store answers").is_allowed()) }
            })
        };
        let reference = || {
            let (connection, digest) = (connection.clone(), digest.clone());
            self.slice(concurrency, slice, 1, move |key| minimal(connection.clone(), digest.clone(), key))
        };
        // The server and the allocator have seen both before it counts.
        drop((ours(), reference()));
        let (mut we, mut they) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // The order changes with every round, so that a drift is nobody's advantage.
            if round % 2 == 0 {
                we.push(ours());
                they.push(reference());
            } else {
                they.push(reference());
                we.push(ours());
            }
        }
        let rates = |slices: &[Slice]| slices.iter().map(|slice| slice.per_second).collect::<Vec<_>>();
        let [rate, cpu] = aims;
        bench.record(Row::of_rounds(work, "1/s", &rates(&we), &rates(&they), rate));
        let cpus = |slices: &[Slice]| slices.iter().map(|slice| slice.redis_us).collect::<Vec<_>>();
        let of_redis = format!("Redis' CPU: {work}");
        bench.record(Row::of_rounds(&of_redis, "us", &cpus(&we), &cpus(&they), cpu));
        bench.note(format_args!("ours: {}; reference: {}", told(&we), told(&they)));
    }

    /// Keeps so many calls under way for so long.
    fn slice<F: Future<Output = ()> + Send + 'static>(
        &self,
        concurrency: usize,
        length: Duration,
        decisions_per_call: usize,
        call: impl Fn(u64) -> F + Clone + Send + 'static,
    ) -> Slice {
        let mut admin = self.server.admin();
        let before = servers::cpu_us(&mut admin);
        let next = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let latencies_us: Vec<f64> = self.runtime.block_on(async {
            let mut callers = JoinSet::new();
            for _ in 0..concurrency {
                let (call, next) = (call.clone(), Arc::clone(&next));
                callers.spawn(async move {
                    let mut latencies_us = Vec::new();
                    // At least one call each, however short the slice.
                    loop {
                        // Relaxed: all callers are on one thread.
                        let key = next.fetch_add(1, Ordering::Relaxed) % KEYS;
                        let asked = Instant::now();
                        call(key).await;
                        latencies_us.push(asked.elapsed().as_secs_f64() * 1e6);
                        if start.elapsed() >= length {
                            break;
                        }
                    }
                    latencies_us
                });
            }
            callers.join_all().await.concat()
        });
        let took = start.elapsed().as_secs_f64();
        let decisions = (latencies_us.len() * decisions_per_call) as f64;
        Slice {
            per_second: decisions / took,
            redis_us: (servers::cpu_us(&mut admin) - before) / decisions,
            latencies_us,
        }
    }
}

async fn minimal(mut connection: MultiplexedConnection, digest: String, key: u64) {
    let mut call = redis::cmd("EVALSHA");
    call.arg(digest).arg(1).arg(format!("rl:3:minimal:{{q0Zx5zTq0Zx5zTq0Zx{key:05}}}"));
    call.arg("abcdefghabcdefghabcdefgh").arg(60_000);
    call.exec_async(&mut connection).await.expect("the server answers");
}

/// Latency and the server's part of all slices.
fn told(slices: &[Slice]) -> String {
    let mut latencies_us: Vec<f64> = slices.iter().flat_map(|slice| &slice.latencies_us).copied().collect();
    latencies_us.sort_by(f64::total_cmp);
    let at = |hundredths: usize| latencies_us[(latencies_us.len() - 1) * hundredths / 100];
    let mut redis_us: Vec<f64> = slices.iter().map(|slice| slice.redis_us).collect();
    redis_us.sort_by(f64::total_cmp);
    format!(
        "p50 {:.0} us, p99 {:.0} us, {:.1} us of Redis' CPU each",
        at(50),
        at(99),
        redis_us[redis_us.len() / 2]
    )
}

/// What `MEMORY USAGE` says of the keys of one bucket, name, value and expiry.
fn bytes_per_key(bench: &mut Bench, bed: &Bed<'_>) {
    for (name, algorithm) in [
        ("GCRA, token bucket, leaky bucket", Algorithm::Gcra),
        ("fixed window", Algorithm::FixedWindow(Anchor::Epoch)),
        ("sliding counter", Algorithm::SlidingCounter),
        ("sliding log, one entry", Algorithm::SlidingLog),
        ("sliding log, 100 entries", Algorithm::SlidingLog),
    ] {
        let work = format!("bytes per key, {name}");
        if !bench.wants(&work) {
            continue;
        }
        let mut admin = bed.server.admin();
        servers::run::<()>(&mut admin, "FLUSHALL");
        // A policy of five letters.
        let policy = Policy::builder("login", algorithm, Quota::new(1_000, Duration::from_secs(86_400)));
        let limiter = policy.on(&bed.store).expect("the quota is possible");
        for _ in 0..if name.ends_with("100 entries") { 100 } else { 1 } {
            let _ = bed.runtime.block_on(async { limiter.check("ada").await.expect("the store answers") });
        }
        let names: Vec<String> = servers::run(&mut admin, "KEYS *:login:*");
        let bytes = names.iter().map(|name| servers::run::<u64>(&mut admin, &format!("MEMORY USAGE {name}")));
        bench.record(Row::alone(&work, "B", bytes.sum::<u64>() as f64, Aim::None));
        if !name.ends_with("100 entries") {
            let keys = if bench.is_smoke() { 100 } else { 100_000 };
            let before = used_memory(&mut admin);
            fill(bed, &limiter, keys);
            let each = (used_memory(&mut admin) - before) / keys as f64;
            bench.note(format_args!(
                "{each:.0} B of Redis' memory for each of {keys} keys, its tables included"
            ));
        }
    }
    servers::run::<()>(&mut bed.server.admin(), "FLUSHALL");
}

fn fill(bed: &Bed<'_>, limiter: &RateLimiter, keys: u64) {
    bed.runtime.block_on(async {
        let mut callers = JoinSet::new();
        for caller in 0..64 {
            let limiter = limiter.clone();
            callers.spawn(async move {
                for key in (caller..keys).step_by(64) {
                    let _ = limiter.check(key).await.expect("the store answers");
                }
            });
        }
        callers.join_all().await;
    });
}

fn used_memory(admin: &mut redis::Connection) -> f64 {
    let info: String = servers::run(admin, "INFO memory");
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).expect("the server counts its memory")
}
