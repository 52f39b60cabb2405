//! The line of a waiting room in Redis: calls and CPU of a poll, beside a GCRA decision on the same server in the same run, and the bytes
//! of a visitor.
//!
//! One thread of ours asks, one call at a time, and a `redis-server` that is started for this answers; both on the same machine.

mod harness;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sluicegate::clock::Clock;
use sluicegate::overflow::WaitingRoom;
use sluicegate::overflow::line::{
    Line, LineAnswer, LineAsk, LineChange, LineHome, LineMode, LinePlace, LineSettings, RedisLine,
};
use sluicegate::{ConfigError, PeerIp, Policy, Quota, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::{self, Server};
use tokio::runtime::Runtime;

use crate::harness::{Aim, Bench, Row};

fn main() -> ExitCode {
    let mut bench = Bench::from_args(
        "Waiting rooms in Redis; the reference is a GCRA decision on the same server, both one at a time",
    );
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        bench.note("there is no redis-server here: nothing is measured");
        return bench.finish();
    }
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the machine can wait for sockets");
    let store = runtime.block_on(async {
        let store = RedisStore::builder().deadline(Duration::from_secs(20)).connect(&server.url());
        let store = store.expect("the settings are possible");
        store.connected(Duration::from_secs(20)).await.expect("the server is up");
        store
    });
    let quota = Quota::new(1_000_000, Duration::from_secs(60));
    let limiter = Policy::gcra("reference", quota).on(&store).expect("the quota is possible");
    let bed = Bed { server, runtime, store, limiter };
    bed.polls(&mut bench);
    bed.bytes(&mut bench);
    bench.finish()
}

/// What a comparison is made on.
struct Bed {
    server: Server,
    runtime: Runtime,
    store: RedisStore,
    limiter: RateLimiter,
}

/// What a side did in a slice.
struct Slice {
    redis_us: f64,
    calls: f64,
    each_us: f64,
}

/// A home that lets go of the line that it opens.
struct Kept(RedisLine, Arc<Mutex<Option<Arc<dyn Line>>>>);

impl LineHome for Kept {
    fn open(&self, settings: LineSettings, clock: Arc<dyn Clock>) -> Result<Arc<dyn Line>, ConfigError> {
        let line = self.0.open(settings, clock)?;
        *self.1.lock().expect("nobody panics with it") = Some(Arc::clone(&line));
        Ok(line)
    }
}

/// A poll for this place, or the first of a visitor, each of another address.
fn ask(place: Option<LinePlace>, number: u64) -> LineAsk {
    // Lots go up and down, so that they are no order of arrival.
    let lot = u32::try_from(number.wrapping_mul(0x9e37_79b9) & 0xffff_ffff).unwrap_or_default();
    LineAsk::new(place, lot).of_client(number | 1 << 60)
}

impl Bed {
    /// An empty line that lets in ten a second, so that nearly all wait.
    fn line(&self, name: &str) -> Arc<dyn Line> {
        let line = Arc::default();
        let _runtime = self.runtime.enter();
        let room = WaitingRoom::builder(name, "10/s").places_per_client(5, PeerIp::new());
        room.build(Kept(RedisLine::new(&self.store), Arc::clone(&line))).expect("the room is possible");
        let opened = line.lock().expect("nobody panics with it").take();
        opened.expect("the room has opened it")
    }

    /// Calls one after the other, for so long; at least one, however short the slice.
    fn slice(&self, length: Duration, mut call: impl AsyncFnMut()) -> Slice {
        let mut admin = self.server.admin();
        let (cpu_us, scripts) = (servers::cpu_us(&mut admin), servers::script_calls(&mut admin));
        let start = Instant::now();
        let polls = self.runtime.block_on(async {
            let mut polls = 0_u32;
            while polls == 0 || start.elapsed() < length {
                call().await;
                polls += 1;
            }
            f64::from(polls)
        });
        let each_us = start.elapsed().as_secs_f64() * 1e6 / polls;
        let calls = (servers::script_calls(&mut admin) - scripts) as f64 / polls;
        Slice { redis_us: (servers::cpu_us(&mut admin) - cpu_us) / polls, calls, each_us }
    }

    fn polls(&self, bench: &mut Bench) {
        let work = ["first poll of a visitor, which takes a place", "poll of a visitor that waits"];
        if !work.iter().any(|work| bench.wants(work)) {
            return;
        }
        let (rounds, length) = bench.rounds();
        let line = self.line("polls");
        let (mut places, mut visitors, mut keys) = (Vec::new(), 0, 0);
        let mut slices: [Vec<Slice>; 3] = Default::default();
        // The server and the allocator have seen all of them before it counts.
        for _ in 0..=rounds {
            let first = self.slice(length, async || {
                visitors += 1;
                if let Ok(LineAnswer::Waiting(standing)) = line.ask(ask(None, visitors)).await {
                    places.push(standing.place);
                }
            });
            let mut next = 0;
            let again = self.slice(length, async || {
                next += 1;
                // Those that came last are far from their turns, and so are nearly all of a long line.
                let place = places.iter().rev().nth(next % places.len().max(1)).copied();
                line.ask(ask(place, visitors)).await.expect("the server answers");
            });
            let decision = self.slice(length, async || {
                keys = (keys + 1) % 1_000;
                assert!(self.limiter.check(keys).await.expect("the server answers").is_allowed());
            });
            for (all, slice) in slices.iter_mut().zip([first, again, decision]) {
                all.push(slice);
            }
        }
        let [first, again, decision] = slices.each_ref().map(|all| &all[1..]);
        let redis_us = |all: &[Slice]| all.iter().map(|slice| slice.redis_us).collect::<Vec<_>>();
        for (work, ours) in work.into_iter().zip([first, again]) {
            if bench.wants(work) {
                let row =
                    Row::of_rounds(work, "us CPU", &redis_us(ours), &redis_us(decision), Aim::Ratio(2.0));
                bench.record(row);
                let median = |mut all: Vec<f64>| {
                    all.sort_by(f64::total_cmp);
                    all[all.len() / 2]
                };
                let each = median(ours.iter().map(|slice| slice.each_us).collect());
                bench.note(format_args!(
                    "{each:.0} us each until the answer; {} visitors in line",
                    places.len()
                ));
                // The instance looks at the line's numbers once a second beside them.
                let calls = median(ours.iter().map(|slice| slice.calls).collect());
                bench.record(Row::alone(&format!("calls of a {work}"), "calls", calls, Aim::Ours(1.01)));
            }
        }
    }

    /// What `MEMORY USAGE` says of all keys of a line, and by how much the server has grown.
    fn bytes(&self, bench: &mut Bench) {
        let work = "bytes of a waiting visitor, with its address";
        if !bench.wants(work) {
            return;
        }
        let visitors: u64 = if bench.is_smoke() { 200 } else { 100_000 };
        let mut admin = self.server.admin();
        servers::run::<()>(&mut admin, "FLUSHALL");
        let before = used_memory(&mut admin);
        let line = self.line("bytes");
        self.runtime.block_on(async {
            for visitor in 1..=visitors {
                line.ask(ask(None, visitor)).await.expect("the server answers");
            }
        });
        let waiting = self.runtime.block_on(async {
            // A change is answered when the numbers of now are known.
            line.change(LineChange::Mode(LineMode::Metered)).await.expect("it answers");
            line.status().waiting as f64
        });
        let keys: Vec<String> = servers::run(&mut admin, "KEYS *");
        let of = |key: &String| servers::run::<u64>(&mut admin, &format!("MEMORY USAGE {key} SAMPLES 0"));
        let bytes: u64 = keys.iter().filter(|key| key.contains(":room:")).map(of).sum();
        bench.record(Row::alone(work, "B", bytes as f64 / waiting, Aim::Ours(300.0)));
        let grown = (used_memory(&mut admin) - before) / waiting;
        bench.note(format_args!("{grown:.0} B of Redis' memory for each of {waiting}"));
    }
}

fn used_memory(admin: &mut redis::Connection) -> f64 {
    let info: String = servers::run(admin, "INFO memory");
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).expect("the server counts its memory")
}
