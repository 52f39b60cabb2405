//! Two scripts decide about the same keys, the short one several requests at a time: nobody is to notice.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::{Arg, Cmd};
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::limiter::check_all;
use sluicegate_core::store::{DecisionFuture, Mode};
use sluicegate_core::{Decision, Key, MemoryStore, Policy, RateLimiter, Store};
use sluicegate_tests::random::Random;
use sluicegate_tests::servers::deployments::standalone;

use crate::support::{connected, overheard, patient, seeds};

const DAY_US: u64 = 86_400_000_000;

async fn redis(prefix: &str, clock: &ManualClock) -> Arc<dyn Store> {
    connected(patient(prefix).clock(clock.clone()), &standalone().url()).await.into()
}

/// The same policies on a store; the last one has a queue, so that its asks are for the long script.
fn limiters(store: &Arc<dyn Store>) -> Vec<RateLimiter> {
    let policies = [
        Policy::gcra("one", "7/s"),
        Policy::token_bucket("two", "100/min burst 300").and("7919/d").named("day"),
        Policy::leaky_bucket("three", "1000/h burst 3"),
        Policy::gcra("four", "1/d"),
        Policy::sliding_counter("five", "1000000/d"),
    ];
    policies.map(|policy| RateLimiter::new(Arc::clone(store), policy.build().unwrap()).unwrap()).into()
}

#[derive(Clone, Debug)]
struct Part {
    limiter: usize,
    key: Key,
    cost: u64,
    mode: Mode,
}

fn part(random: &mut Random, modes: u64) -> Part {
    let cost = [0, 1, 1, 1, 2, 3, 7, 8, 300, 301, 1 << 40][usize::try_from(random.below(11)).unwrap()];
    let mode = match random.below(modes) {
        0..=3 => Mode::Spend,
        4 => Mode::Peek,
        5 => Mode::Charge,
        6 | 7 => Mode::Refund,
        8 => Mode::Reserve { longest: Duration::from_micros(random.below(DAY_US)) },
        _ => Mode::Reset,
    };
    // What was charged shuts a key out for so long that nothing else would be seen.
    let cost = if mode == Mode::Charge { cost % 10 } else { cost };
    let limiter = usize::try_from(random.below(4)).unwrap();
    Part { limiter, key: Key::from(random.below(2)), cost, mode }
}

fn ask(limiters: &[RateLimiter], parts: &[Part]) -> DecisionFuture {
    let of = |part: &Part| limiters[part.limiter].check(part.key.clone()).cost(part.cost).mode(part.mode);
    check_all(parts.iter().map(of).collect::<Vec<_>>())
}

fn shown(decision: &Decision) -> String {
    format!("{:?} {:?} {:?}", decision.outcome(), decision.delay(), decision.quotas())
}

fn moved(random: &mut Random, clock: &ManualClock, back_us: u64) {
    let now_us = clock.now_us();
    let now_us = match random.below(8) {
        0..=1 => now_us,
        2..=3 => now_us + random.below(200_000),
        4 => now_us + random.below(DAY_US / 24),
        5 => now_us + random.below(DAY_US * 2),
        6 => now_us - random.below(500_000),
        _ => now_us - random.below(back_us),
    };
    clock.set(Duration::from_micros(now_us));
}

/// On one thread requests are sent in the order of the calls, the first by itself and the others together.
#[tokio::test]
async fn requests_that_share_a_call_are_decided_one_after_the_other_as_memory_does() {
    let clock = ManualClock::new();
    let memory = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = redis("together", &clock).await;
    let (ours, reference) = (limiters(&store), limiters(&memory.into()));
    for seed in seeds(25) {
        let mut random = Random::new(seed);
        clock.set(Duration::from_secs(1_800_000_000 + 86_400_000 * seed));
        let mut trace = format!("seed {seed}");
        for _ in 0..60 {
            moved(&mut random, &clock, 500_000);
            let now_us = clock.now_us();
            // Several at once of those that share a call, or one of any kind. What charges goes by a task of its own: either
            // all do, or none does.
            let (count, modes) = if random.below(2) == 0 { (1 + random.below(12), 5) } else { (1, 10) };
            let charges = count > 1 && random.below(3) == 0;
            let requests: Vec<Vec<Part>> = (0..count)
                .map(|_| {
                    let mut parts: Vec<Part> = Vec::new();
                    for _ in 0..=random.below(3) {
                        let next = part(&mut random, modes);
                        // Asks for the same bucket are the long script's business.
                        let is_twin = |part: &Part| (part.limiter, &part.key) == (next.limiter, &next.key);
                        if count == 1 || !parts.iter().any(is_twin) {
                            parts.push(next);
                        }
                    }
                    if charges {
                        (parts[0].mode, parts[0].cost) = (Mode::Charge, parts[0].cost % 10);
                    }
                    parts
                })
                .collect();
            trace.push_str(&format!("\n{now_us}: {requests:?}"));
            let mut verdicts: Vec<DecisionFuture> = requests.iter().map(|parts| ask(&ours, parts)).collect();
            let mut waker = Context::from_waker(Waker::noop());
            let early: Vec<_> = verdicts
                .iter_mut()
                .map(|verdict| match std::pin::Pin::new(verdict).poll(&mut waker) {
                    Poll::Ready(answer) => Some(answer),
                    Poll::Pending => None,
                })
                .collect();
            for ((parts, verdict), early) in requests.iter().zip(verdicts).zip(early) {
                let answer = match early {
                    Some(answer) => answer,
                    None => verdict.await,
                };
                let reference = ask(&reference, parts).await.expect("memory answers");
                let answer = answer.unwrap_or_else(|error| panic!("{error:?}\n{trace}"));
                assert_eq!(shown(&answer), shown(&reference), "{parts:?}\n{trace}");
            }
        }
    }
    assert_eq!(store.status().disagreements, 0);
}

/// Clocks that are set, and values that are not ours, are the long script's business; the short one is to leave them to it.
#[tokio::test]
async fn both_scripts_decide_the_same_whatever_the_clock_does() {
    let clock = ManualClock::new();
    let (short, long) = (redis("short", &clock).await, redis("long", &clock).await);
    let (short, long) = (limiters(&short), limiters(&long));
    for seed in seeds(25) {
        let mut random = Random::new(seed);
        clock.set(Duration::from_secs(1_800_000_000 + 8_640_000 * seed));
        let mut trace = format!("seed {seed}");
        for step in 0..80_u64 {
            moved(&mut random, &clock, DAY_US);
            let now_us = clock.now_us();
            let parts = vec![part(&mut random, 10)];
            trace.push_str(&format!("\n{now_us}: {parts:?}"));
            // A second ask, for a bucket of the long script's, takes the first one along.
            let mut both = parts.clone();
            both.push(Part { limiter: 4, key: Key::from(step + 1_000 * seed), cost: 1, mode: Mode::Peek });
            let ours = ask(&short, &parts).await.expect("the store answers");
            let theirs = ask(&long, &both).await.expect("the store answers");
            let ours = format!("{} {:?}", ours.is_allowed(), ours.quotas());
            let quotas = long[parts[0].limiter].policy().quotas().len();
            let theirs = format!("{} {:?}", theirs.is_allowed(), &theirs.quotas()[..quotas]);
            assert_eq!(ours, theirs, "{trace}");
        }
    }
}

/// The text of the script, as a store sends it to a server that it meets.
async fn text() -> Vec<u8> {
    let sent = Arc::new(OnceLock::new());
    let text = Arc::clone(&sent);
    let keep = move |command: &Cmd| {
        let words: Vec<_> = command.args_iter().take(2).collect();
        if let [Arg::Simple(b"EVAL"), Arg::Simple(script)] = words[..] {
            text.get_or_init(|| script.to_vec());
        }
    };
    overheard(patient("text"), &standalone().url(), keep).await;
    sent.get().expect("a store tries its script out when it connects").clone()
}

/// The eighth mode took all of its three bits: a ninth would have spent.
#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_the_script_does_not_know_is_an_error_and_changes_nothing() {
    let client = redis::Client::open(standalone().url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (text, number) = (text().await, |number: f64| number.to_le_bytes());
    // One quota of GCRA, and one ask of one unit.
    let mut numbers = vec![1];
    for of_rule in [1_000_000.0, 1.0, 1.0, 5.0, 50.0, -1.0] {
        numbers.extend(number(of_rule));
    }
    let million = 1_000_001_u32.to_le_bytes();
    let of_value = [&[1, 1][..], &0o11113_u16.to_le_bytes(), &million[..3], &[2, 2, 6, 51]].concat();
    for (mode, is_known) in
        [(0_u8, true), (8, true), (9, false), (127, false), (128, true), (136, true), (137, false)]
    {
        let key = format!("unknown-mode-{mode}");
        let order =
            [&[0; 16][..], &[mode, 1, 2, 0], &0_u16.to_le_bytes(), &number(0.0), &number(1.0)].concat();
        let mut call = redis::cmd("EVAL");
        call.arg(&text).arg(1).arg(&key).arg(order).arg(&numbers).arg(&of_value);
        let answer: Result<redis::Value, _> = call.query_async(&mut connection).await;
        assert_eq!(answer.is_ok(), is_known, "mode {mode}: {answer:?}");
        if let Err(error) = answer {
            assert!(error.to_string().contains("unknown mode"), "{error}");
            let is_there: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut connection).await.unwrap();
            assert!(!is_there, "mode {mode} has spent");
        }
    }
}
