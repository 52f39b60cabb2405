//! Decisions in memory, beside governor's keyed limiter as it comes: a `DashMap` with SipHash, and quanta's clock.
//!
//! Every quota but those of the refused rows is so large that all decisions are allowed, and so slow that a key stays
//! in debt for the whole run: our table is as full as its capacity, which is its worst case.

mod harness;

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governor::clock::{self, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::limiter::check_all;
use sluicegate::policy::{PolicyBuilder, Quotas};
use sluicegate::{Key, MemoryStore, Policy, Quota, RateLimiter};

use crate::harness::{Aim, Bench, Row, on_threads};

/// Distinct keys of the large rows.
const MANY: usize = 1_000_000;

/// A unit lasts a second, and a burst more than a row of the hottest key can spend.
const BURST: u32 = 250_000_000;

fn main() -> ExitCode {
    let mut args = std::env::args().skip_while(|arg| arg != "--resident").skip(1);
    if let Some(side) = args.next() {
        let keys = args.next().and_then(|keys| keys.parse().ok()).expect("the parent says how many keys");
        return resident_child(&side, keys);
    }
    let mut bench = Bench::from_args("In memory; the reference is governor's keyed limiter");
    many_keys(&mut bench);
    few_keys(&mut bench);
    other_algorithms(&mut bench);
    several(&mut bench);
    own_quotas(&mut bench);
    suspension(&mut bench);
    resident(&mut bench);
    bench.finish()
}

/// governor's clock under our trait: the same counter, scaled in the same way.
struct QuantaClock(quanta::Clock);

impl Clock for QuantaClock {
    #[inline]
    fn now_us(&self) -> u64 {
        self.0.delta_as_nanos(0, self.0.raw()) / 1_000
    }
}

/// governor's keyed limiter with the store and the clock that it comes with, or with another clock.
type Governor<K, C = clock::DefaultClock> =
    governor::RateLimiter<K, DefaultKeyedStateStore<K>, C, NoOpMiddleware<<C as clock::Clock>::Instant>>;

#[derive(Clone, Copy)]
enum Ticking {
    Quanta,
    Default,
    QuotaStatus,
}

fn store(clock: Ticking, capacity: usize) -> MemoryStore {
    let builder = MemoryStore::builder().table_size(capacity);
    let builder = match clock {
        Ticking::Quanta => builder.clock(QuantaClock(quanta::Clock::new())),
        Ticking::Default => builder,
        Ticking::QuotaStatus => {
            let clock = ManualClock::new();
            clock.advance(Duration::from_secs(1));
            builder.clock(clock)
        }
    };
    builder.build().expect("the capacity is possible")
}

fn on(policy: PolicyBuilder, store: &MemoryStore) -> RateLimiter {
    policy.on(store).expect("the policy is possible")
}

fn generous() -> PolicyBuilder {
    Policy::gcra("generous", Quota::per_second(1).burst(u64::from(BURST)))
}

fn generous_governor() -> Governor<String> {
    Governor::keyed(generous_quota())
}

fn generous_quota() -> governor::Quota {
    let burst = NonZeroU32::new(BURST).expect("the burst is not 0");
    governor::Quota::per_second(NonZeroU32::MIN).allow_burst(burst)
}

/// Key number `index`, of 15 bytes.
fn name(index: usize) -> String {
    format!("user-{index:010}")
}

/// `count` keys in a random order, which the rows then walk through in turn: the keys themselves come in from memory
/// as predictably as a request's bytes do, the limiter's own accesses are random.
fn shuffled(count: usize, seed: u64) -> Vec<String> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = seed;
    for last in (1..count).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(last, usize::try_from(random >> 16).unwrap_or(0) % (last + 1));
    }
    order.into_iter().map(name).collect()
}

#[inline]
fn ours(limiter: &RateLimiter, key: &str) -> bool {
    match limiter.check(key).start().known() {
        Some(Ok(decision)) => decision.is_allowed(),
        _ => panic!("memory answers at once"),
    }
}

#[inline]
fn under(limiter: &RateLimiter, quotas: &Quotas, key: &str) -> bool {
    match limiter.check(key).under(quotas).expect("it is possible").start().known() {
        Some(Ok(decision)) => decision.is_allowed(),
        _ => panic!("memory answers at once"),
    }
}

#[inline]
fn theirs<C: clock::Clock>(limiter: &Governor<String, C>, key: &String) -> bool {
    limiter.check_key(key).is_ok()
}

/// A side that walks through the keys, and goes on where it stopped.
fn walk<'a>(keys: &'a [String], mut decide: impl FnMut(&'a String) -> bool) -> impl FnMut(u64) {
    let mut at = 0;
    move |times| {
        for _ in 0..times {
            black_box(decide(&keys[at]));
            at = if at + 1 == keys.len() { 0 } else { at + 1 };
        }
    }
}

/// The same, but no decision begins before the one before it has ended, as if each belonged to another request.
///
/// The usual way is an `lfence`, which needs unsafe code; a `SeqCst` fence is a locked instruction, behind which loads
/// still run ahead (22 ns per random line instead of 200, as without it). So the next key depends on the machine's
/// clock, whose `rdtscp` waits for all loads before it. This isolates as an `lfence` does (217 ns per random line
/// instead of 200) and costs 25 ns instead of 7, which are in both sides here.
fn walk_isolated<'a>(keys: &'a [String], mut decide: impl FnMut(&'a String) -> bool) -> impl FnMut(u64) {
    let origin = Instant::now();
    let nothing = black_box(0);
    let mut at = 0;
    move |times| {
        for _ in 0..times {
            black_box(decide(&keys[at]));
            let dependent = origin.elapsed().subsec_nanos() as usize & nothing;
            at = if at + 1 >= keys.len() { 0 } else { at + 1 + dependent };
        }
    }
}

fn many_keys(bench: &mut Bench) {
    let rows = [
        ("1 M keys, one decision per request", Aim::Ratio(0.40)),
        ("1 M keys, streaming", Aim::Ratio(0.40)),
        ("1 M keys, streaming, default clock", Aim::None),
        // Some processors (Intel's, in virtual machines) let nothing run ahead of a `rdtsc`; there, a stream is no
        // faster than one decision per request unless the time costs nothing.
        ("1 M keys, streaming, a clock that stands still", Aim::None),
    ];
    if !rows.iter().any(|(work, _)| bench.wants(work)) {
        return;
    }
    let count = if bench.is_smoke() { 1_000 } else { MANY };
    let keys = shuffled(count, 0x9e37_79b9_7f4a_7c15);
    let stores = [Ticking::Quanta, Ticking::Default, Ticking::QuotaStatus].map(|clock| store(clock, count));
    let [cheap, default, still] = stores.each_ref().map(|store| on(generous(), store));
    let governor = generous_governor();
    let governor_still = Governor::dashmap_with_clock(generous_quota(), FakeRelativeClock::default());
    // In another order than they are walked, or governor's copies of the keys would lie in that order in the heap.
    for key in shuffled(count, 0x2545_f491_4f6c_dd1d) {
        for limiter in [&cheap, &default, &still] {
            ours(limiter, &key);
        }
        theirs(&governor, &key);
        theirs(&governor_still, &key);
    }
    let [isolated, streaming, streaming_default, streaming_still] = rows;
    bench.compare(
        isolated.0,
        isolated.1,
        walk_isolated(&keys, |key| ours(&cheap, key)),
        walk_isolated(&keys, |key| theirs(&governor, key)),
    );
    for ((work, aim), limiter) in [(streaming, &cheap), (streaming_default, &default)] {
        let reference = walk(&keys, |key| theirs(&governor, key));
        bench.compare(work, aim, walk(&keys, |key| ours(limiter, key)), reference);
    }
    bench.compare(
        streaming_still.0,
        streaming_still.1,
        walk(&keys, |key| ours(&still, key)),
        walk(&keys, |key| theirs(&governor_still, key)),
    );
    let evictions: u64 = stores.iter().map(|store| store.stats().evictions).sum();
    bench.note(format_args!("{evictions} states made room for others in the rows of 1 M keys"));
}

fn few_keys(bench: &mut Bench) {
    let thousand = shuffled(1_000, 0x9e37_79b9_7f4a_7c15);
    let one = &thousand[..1];
    for (clock, suffix, aim) in
        [(Ticking::Quanta, "", Aim::Ratio(0.65)), (Ticking::Default, ", default clock", Aim::Ratio(0.85))]
    {
        for (keys, what) in [(&thousand[..], "1,000 keys"), (one, "one hot key")] {
            let (store, governor) = (store(clock, 100_000), generous_governor());
            let limiter = on(generous(), &store);
            bench.compare(
                &format!("{what}{suffix}"),
                aim,
                walk(keys, |key| ours(&limiter, key)),
                walk(keys, |key| theirs(&governor, key)),
            );
        }
    }
    let key = &thousand[0];
    for (clock, suffix) in [(Ticking::Quanta, ""), (Ticking::Default, ", default clock")] {
        let store = store(clock, 100_000);
        let limiter = on(Policy::gcra("strict", "1/h"), &store);
        let governor: Governor<String> = Governor::keyed(governor::Quota::per_hour(NonZeroU32::MIN));
        bench.compare(
            &format!("one hot key, refused{suffix}"),
            Aim::None,
            walk(one, |key| ours(&limiter, key)),
            walk(one, |key| theirs(&governor, key)),
        );
    }
    for (policy, quota, what, aim) in [
        (generous(), generous_quota(), "one hot key, 2 threads", Aim::Ratio(0.5)),
        (
            Policy::gcra("strict", "1/h"),
            governor::Quota::per_hour(NonZeroU32::MIN),
            "one hot key, refused, 2 threads",
            Aim::None,
        ),
    ] {
        let store = store(Ticking::Quanta, 100_000);
        let (limiter, governor): (_, Governor<String>) = (on(policy, &store), Governor::keyed(quota));
        let both = |times: u64, decide: &(dyn Fn(u64) + Sync)| on_threads(2, |_| decide(times));
        bench.compare(
            what,
            aim,
            |times| {
                both(times, &|times| {
                    for _ in 0..times {
                        black_box(ours(&limiter, key));
                    }
                })
            },
            |times| {
                both(times, &|times| {
                    for _ in 0..times {
                        black_box(theirs(&governor, key));
                    }
                })
            },
        );
    }
}

/// What the other algorithms cost, beside governor's GCRA.
fn other_algorithms(bench: &mut Bench) {
    let keys = shuffled(1_000, 0x9e37_79b9_7f4a_7c15);
    let refused = AtomicU64::new(0);
    for (what, policy, aim) in [
        ("fixed window", Policy::fixed_window("window", "1000000000/min"), Aim::Ratio(1.0)),
        ("sliding counter", Policy::sliding_counter("counter", "1000000000/min"), Aim::Ratio(1.0)),
        // A log is walked to be emptied; ten or twenty entries per key and millisecond are a busy one.
        (
            "sliding log",
            Policy::sliding_log("log", Quota::new(10_000, Duration::from_millis(1))),
            Aim::Ratio(1.7),
        ),
        ("token bucket, awkward quota", Policy::token_bucket("awkward", "7/s burst 250000000"), Aim::None),
        ("two quotas", two_quotas(), Aim::None),
    ] {
        let (store, governor) = (store(Ticking::Quanta, 100_000), generous_governor());
        let limiter = on(policy, &store);
        bench.compare(
            &format!("1,000 keys, {what}"),
            aim,
            walk(&keys, |key| {
                let allowed = ours(&limiter, key);
                if !allowed {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                allowed
            }),
            walk(&keys, |key| theirs(&governor, key)),
        );
    }
    if refused.load(Ordering::Relaxed) > 0 {
        bench.note(format_args!("{} decisions of these were refused", refused.load(Ordering::Relaxed)));
    }
}

fn two_quotas() -> PolicyBuilder {
    Policy::gcra("two", "1/s burst 250000000").and("1/s burst 200000000").named("second")
}

/// What a request pays for a second quota, or a second limiter, beside one.
fn several(bench: &mut Bench) {
    let keys = shuffled(1_000, 0x9e37_79b9_7f4a_7c15);
    let store = store(Ticking::Quanta, 100_000);
    let [one, two] = [generous(), two_quotas()].map(|policy| on(policy, &store));
    bench.compare(
        "1,000 keys, two quotas, to one quota",
        Aim::Ratio(2.3),
        walk(&keys, |key| ours(&two, key)),
        walk(&keys, |key| ours(&one, key)),
    );
    let other = on(Policy::gcra("other", "1/s burst 250000000"), &store);
    let batched: Vec<Key> = keys.iter().map(|key| Key::from(key.as_str())).collect();
    let mut next = batched.iter().cycle();
    bench.compare(
        "1,000 keys, two limiters, to one limiter",
        Aim::Ratio(2.8),
        walk(&keys, |_| {
            let key = next.next().expect("it goes round");
            let answer = check_all([one.check(key), other.check(key)]);
            matches!(answer.known(), Some(Ok(decision)) if decision.is_allowed())
        }),
        walk(&keys, |key| ours(&one, key)),
    );
}

/// What it costs that each of 1,000 keys has another quota, beside one quota of all.
fn own_quotas(bench: &mut Bench) {
    let keys = shuffled(1_000, 0x9e37_79b9_7f4a_7c15);
    let (own, one) = (store(Ticking::Quanta, 100_000), store(Ticking::Quanta, 100_000));
    let [own, one] = [&own, &one].map(|store| on(generous(), store));
    let quotas: Vec<Quotas> = (0..1_000).map(|more| own_quota(more).into()).collect();
    let kept: Vec<RateLimiter> =
        quotas.iter().map(|quotas| own.with_quotas(quotas).expect("it is possible")).collect();
    let mut next = kept.iter().cycle();
    bench.compare(
        "1,000 keys of 1,000 quotas, limiters that are kept, to one quota",
        Aim::Ratio(1.1),
        walk(&keys, |key| ours(next.next().expect("it goes round"), key)),
        walk(&keys, |key| ours(&one, key)),
    );
    let mut next = quotas.iter().cycle();
    bench.compare(
        "1,000 keys, quotas that come with the ask, to one quota",
        Aim::None,
        walk(&keys, |key| under(&own, next.next().expect("it goes round"), key)),
        walk(&keys, |key| ours(&one, key)),
    );
    let mut next = quotas.iter().cycle();
    bench.compare(
        "1,000 keys, a limiter that is made with the ask, to one quota",
        Aim::None,
        walk(&keys, |key| {
            let quotas = next.next().expect("it goes round");
            ours(&own.with_quotas(quotas).expect("it is possible"), key)
        }),
        walk(&keys, |key| ours(&one, key)),
    );
    let customers = shuffled(100_000, 0x9e37_79b9_7f4a_7c15);
    let mut next = quotas.iter().cycle();
    bench.compare(
        "100,000 customers of 1,000 quotas, which come with the ask, to one quota",
        // At least 0.9 of the decisions a second.
        Aim::Ratio(1.11),
        walk(&customers, |key| under(&own, next.next().expect("it goes round"), key)),
        walk(&customers, |key| ours(&one, key)),
    );
}

fn own_quota(more: u64) -> Quota {
    Quota::per_second(1).burst(u64::from(BURST) - more)
}

/// A decision under a policy that suspends keys, beside the same without: when nobody is suspended, and while somebody is.
fn suspension(bench: &mut Bench) {
    let keys = shuffled(1_000, 0x9e37_79b9_7f4a_7c15);
    for (what, aim, lasts) in [
        ("1,000 keys, nobody suspended, to no suspension", Aim::Ratio(1.5), None),
        ("1,000 keys, another one suspended, to no suspension", Aim::None, Some(Duration::from_secs(3_600))),
    ] {
        let (with, without) = (store(Ticking::Quanta, 100_000), store(Ticking::Quanta, 100_000));
        let suspending = on(generous().suspend(100, "10min", "30min"), &with);
        let plain = on(generous(), &without);
        if let Some(lasts) = lasts {
            drop(suspending.suspensions().suspend("another", lasts));
        }
        bench.compare(
            what,
            aim,
            walk(&keys, |key| ours(&suspending, key)),
            walk(&keys, |key| ours(&plain, key)),
        );
    }
}

/// Resident bytes per key, each side in a process of its own, so that neither gets memory that the other has freed.
fn resident(bench: &mut Bench) {
    let rows = [
        ("resident bytes per key, 1 M keys in debt", "ours", 24.0),
        ("resident bytes per key with own quotas, 1 M keys of 1,000 quotas in debt", "own", 64.0),
    ];
    if !rows.iter().any(|(work, ..)| bench.wants(work)) || resident_bytes().is_none() {
        return;
    }
    let count = if bench.is_smoke() { 10_000 } else { MANY };
    let run = |side: &str| -> (f64, u64) {
        let exe = std::env::current_exe().expect("a running program has a path");
        let output = Command::new(exe).args(["--resident", side, &count.to_string()]).output();
        let output =
            String::from_utf8(output.expect("the bench runs itself").stdout).expect("it prints numbers");
        let mut numbers = output.split_whitespace().map(|number| number.parse().expect("it prints numbers"));
        let (bytes, evictions): (u64, u64) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        (bytes as f64 / count as f64, evictions)
    };
    let (governor, _) = run("governor");
    for (work, side, aim) in rows {
        if !bench.wants(work) {
            continue;
        }
        let (bytes, evictions) = run(side);
        bench.record(Row::fixed(work, "B/key", bytes, governor, Aim::Ours(aim)));
        bench.note(format_args!(
            "{evictions} of {count} keys in debt were forgotten ({:.1} %) in a store of that capacity",
            100.0 * evictions as f64 / count as f64
        ));
    }
}

fn resident_child(side: &str, keys: usize) -> ExitCode {
    let mut key = name(0);
    let digits = key.len() - 10;
    let before = resident_bytes().expect("the parent has looked");
    let mut fill = |decide: &dyn Fn(usize, &String)| {
        for index in 0..keys {
            use std::fmt::Write;
            key.truncate(digits);
            write!(key, "{index:010}").expect("a string takes everything");
            decide(index, &key);
        }
    };
    let (store, governor) = (store(Ticking::Default, keys), generous_governor());
    // Looked at while the policy is open: its table goes with it.
    let after = match side {
        "ours" => {
            let policy = on(generous(), &store);
            fill(&|_, key| {
                black_box(ours(&policy, key));
            });
            resident_bytes()
        }
        "own" => {
            let policy = on(generous(), &store);
            fill(&|index, key| {
                let own = policy.with_quotas(own_quota(index as u64 % 1_000)).expect("it is possible");
                black_box(ours(&own, key));
            });
            resident_bytes()
        }
        _ => {
            fill(&|_, key| {
                black_box(theirs(&governor, key));
            });
            resident_bytes()
        }
    };
    let bytes = after.expect("the parent has looked").saturating_sub(before);
    println!("{bytes} {}", store.stats().evictions);
    ExitCode::SUCCESS
}

/// What the kernel counts at this moment, without the pages of the program's own code; `statm` may lag behind.
fn resident_bytes() -> Option<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
