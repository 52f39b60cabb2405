//! What other limiters' own test suites expect, as data in `tests/data/vectors.json`; each names its source.

use std::time::Duration;

use serde_json::Value;
use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::Mode;
use sluicegate_core::{Algorithm, Decision, Key, MemoryStore, Outcome, Policy, Quota, RateLimiter};

use crate::support::{answer, ms, us};

type Reason = fn(&Value);

/// Vectors that contradict our design or cannot be said in our API, each with the test that asserts the reason.
const ELSEWHERE: [(&str, Reason); 6] = [
    ("tb-refill-3", a_clock_that_steps_back_is_waited_out_and_not_frozen),
    ("tb-acquire-7", more_than_the_burst_has_no_turn_at_all),
    ("tb-big-numbers", a_capacity_of_2_to_the_59th_is_refused),
    ("cfg-overflown", a_refund_never_lifts_a_key_above_rest),
    ("cfg-id-mismatch", a_quota_of_another_id_starts_from_the_most_spent_one),
    ("gub-change-limit", shrinking_keeps_what_fits_and_takes_no_difference),
];

fn all() -> Vec<Value> {
    serde_json::from_str(include_str!("../../data/vectors.json")).expect("the vectors are JSON")
}

#[test]
fn the_vectors_of_other_limiters_hold() {
    let vectors = all();
    for vector in &vectors {
        let id = vector["id"].as_str().expect("a vector has an id");
        match ELSEWHERE.iter().find(|(name, _)| *name == id) {
            Some((_, reason)) => reason(vector),
            None => Run::new(vector).steps(),
        }
    }
    for (name, _) in ELSEWHERE {
        assert!(vectors.iter().any(|vector| vector["id"] == name), "{name} is not among the vectors");
    }
}

#[test]
fn twenty_concurrent_calls_share_one_window_as_twenty_in_a_row_do() {
    let vectors = all();
    let vector = vectors.iter().find(|vector| vector["id"] == "sethvargo-2x").expect("it is among the data");
    let run = Run::new(vector);
    let steps: Vec<_> = vector["steps"].as_array().expect("steps").iter().collect();
    let first: Vec<_> = steps.iter().filter(|step| step["at_ms"] == 0).collect();
    let mut seen: Vec<(bool, u64)> = std::thread::scope(|scope| {
        let calls: Vec<_> = first
            .iter()
            .map(|_| {
                scope.spawn(|| {
                    let decision = answer(run.limiters[0].check("k"));
                    (decision.is_allowed(), decision.remaining())
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().expect("no call panics")).collect()
    });
    let mut wanted: Vec<(bool, u64)> =
        first.iter().map(|step| (step["allowed"] == true, number(&step["remaining"]))).collect();
    seen.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}

/// One vector on a store of its own. Each of its bandwidths is a policy of its own, because each can start with
/// another number of tokens; they are decided together.
struct Run<'a> {
    vector: &'a Value,
    clock: ManualClock,
    limiters: Vec<RateLimiter>,
}

impl<'a> Run<'a> {
    fn new(vector: &'a Value) -> Self {
        let config = &vector["config"];
        let clock = ManualClock::new();
        clock.set(ms(config["created_at_ms"].as_u64().unwrap_or(0)));
        let limit = config["limit"].as_u64().unwrap_or(0);
        let entries = usize::try_from(limit * 16).expect("a limit fits").max(16);
        let store = MemoryStore::builder().table_size(64).log_entries(entries).clock(clock.clone()).build();
        let store = store.expect("the store can be built");
        let single = [config.clone()];
        let bandwidths = config["bandwidths"].as_array().map_or(&single[..], Vec::as_slice);
        // Those of several named quotas cannot, nor those that are looked at when a full bucket is forgotten here, as none is there.
        let starts = !bandwidths[0]["id"].is_string() && !bandwidths.iter().any(|b| is_forgotten(vector, b));
        let plain: Vec<Value> = bandwidths.iter().map(full).collect();
        let written = if starts { bandwidths } else { &plain };
        // Only quotas of one policy have ids, and its first one never does: a wide one stands there.
        let policies: Vec<Policy> = if bandwidths[0]["id"].is_string() {
            vec![named(bandwidths)]
        } else {
            written.iter().enumerate().map(|(i, b)| built(vector, &format!("b{i}"), b)).collect()
        };
        let limiters: Vec<_> = policies
            .into_iter()
            .map(|policy| RateLimiter::new(&store, policy).expect("the store takes it"))
            .collect();
        // Where it does not start so, it is charged at once, by what the emptiest of them lacks.
        let missing = |b: &Value| {
            b["initial_tokens"].as_u64().map_or(0, |start| number(&b["capacity"]).saturating_sub(start))
        };
        let charged = if starts { &[] } else { bandwidths };
        for (i, limiter) in limiters.iter().enumerate() {
            let own = if limiters.len() == 1 { charged } else { charged.get(i..=i).unwrap_or(&[]) };
            // It begins now.
            let _ = answer(limiter.charge("k", own.iter().map(missing).max().unwrap_or(0)));
        }
        Self { vector, clock, limiters }
    }

    fn steps(&self) {
        for (index, step) in self.vector["steps"].as_array().expect("steps").iter().enumerate() {
            let place = format!("{} step {index} ({})", self.vector["id"], self.vector["source"]);
            let decision = self.take(step);
            check(step, &decision, &place);
            if let Some(rounding) = step["rounding"].as_u64() {
                self.check_rounding(step, rounding, &decision, &place);
            }
        }
    }

    fn take(&self, step: &Value) -> Decision {
        self.clock.set(ms(number(&step["at_ms"])));
        let key = Key::from(step["key"].as_str().unwrap_or("k"));
        let (mode, cost) = match step["op"].as_str() {
            None => (Mode::Spend, number(&step["cost"])),
            Some("peek" | "test") => (Mode::Peek, number(&step["cost"])),
            // Asked for one unit, a peek says how long the next one takes.
            Some("available" | "full_refill") => (Mode::Peek, 1),
            Some("force_consume" | "preload") => (Mode::Charge, number(&step["cost"])),
            Some("acquire") => {
                (Mode::Reserve { longest: ms(number(&step["max_wait_ms"])) }, number(&step["cost"]))
            }
            Some("reset") => (Mode::Reset, 0),
            Some("replace") => {
                self.replace(step);
                (Mode::Peek, 1)
            }
            Some(other) => panic!("{other} is no operation"),
        };
        if let (Some(limit), [limiter]) = (step["limit"].as_u64(), &*self.limiters)
            && limiter.policy().quotas()[0].quota().limit() != limit
        {
            let mut config = self.vector["config"].clone();
            config["limit"] = limit.into();
            limiter.replace(built(self.vector, "b0", &config), Inherit::AsIs).expect("the store takes it");
        }
        answer(check_all(self.limiters.iter().map(|limiter| limiter.check(&key).cost(cost).mode(mode))))
    }

    fn replace(&self, step: &Value) {
        let to = step["to"].as_array().expect("a replacement says by what");
        let how = match step["strategy"].as_str() {
            Some("RESET") => Inherit::Reset,
            Some("AS_IS") => Inherit::AsIs,
            Some("ADDITIVE") => Inherit::Additive,
            Some("PROPORTIONALLY") => Inherit::Proportional,
            other => panic!("{other:?} is no strategy"),
        };
        let policy = if to[0]["id"].is_string() { named(to) } else { built(self.vector, "b0", &to[0]) };
        self.limiters[0].replace(policy, how).expect("the store takes it");
    }

    /// `rounding` is the part of the next token that is there already, in units of one `period`th; it shows in how
    /// long that token still takes.
    fn check_rounding(&self, step: &Value, rounding: u64, decision: &Decision, place: &str) {
        let bandwidth =
            if step["to"].is_array() { &step["to"][0] } else { &self.vector["config"]["bandwidths"][0] };
        let (period, refill) = (number(&bandwidth["period_ms"]), number(&bandwidth["refill_tokens"]));
        let remaining = step["remaining"].as_i64().expect("a step with a rounding has a remainder");
        if remaining == bandwidth["capacity"].as_i64().expect("a capacity") {
            return assert_eq!(decision.deciding().available_after(), Duration::ZERO, "{place}");
        }
        let lacking = u64::try_from(remaining.max(0) + 1 - remaining).expect("more is lacking in debt");
        let wait = us(((lacking * period - rounding) * 1_000).div_ceil(refill));
        assert_eq!(decision.deciding().available_after(), wait, "{place}");
    }
}

fn check(step: &Value, decision: &Decision, place: &str) {
    if let Some(allowed) = step["allowed"].as_bool() {
        assert_eq!(decision.is_allowed(), allowed, "{place}: {decision:?}");
    }
    if let Some(remaining) = step["remaining"].as_i64() {
        let least = decision.quotas().iter().map(|status| status.remaining()).min();
        assert_eq!(least, u64::try_from(remaining.max(0)).ok(), "{place}: {decision:?}");
    }
    match &step["retry_after_ms"] {
        Value::Null => {}
        Value::String(_) => assert_eq!(decision.outcome(), Outcome::Impossible, "{place}: {decision:?}"),
        wait if *wait == 0 => assert_eq!(decision.retry_after(), None, "{place}: {decision:?}"),
        wait => assert_eq!(decision.retry_after(), Some(ms(number(wait))), "{place}: {decision:?}"),
    }
    if let Some(reset) = step["reset_after_ms"].as_u64() {
        assert_eq!(decision.reset_after(), ms(reset), "{place}: {decision:?}");
    }
    if let Some(full) = step["full_refill_ms"].as_u64() {
        let longest = decision.quotas().iter().map(|status| status.reset_after()).max();
        assert_eq!(longest, Some(ms(full)), "{place}: {decision:?}");
    }
    if let Some(wait) = step["wait_ms"].as_u64() {
        assert_eq!(decision.delay(), ms(wait), "{place}: {decision:?}");
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// A bandwidth that starts full.
fn full(bandwidth: &Value) -> Value {
    let mut full = bandwidth.clone();
    full["initial_tokens"] = Value::Null;
    full
}

/// Whether a step of a vector comes when a key would be forgotten that starts then: it was full for as long as a burst refills.
fn is_forgotten(vector: &Value, bandwidth: &Value) -> bool {
    let Some(start) = bandwidth["initial_tokens"].as_u64() else { return false };
    let (burst, refill) = (number(&bandwidth["capacity"]), number(&bandwidth["refill_tokens"]));
    let created = vector["config"]["created_at_ms"].as_u64().unwrap_or(0);
    let after = created + (2 * burst).saturating_sub(start) * number(&bandwidth["period_ms"]) / refill;
    vector["steps"].as_array().expect("steps").iter().any(|step| number(&step["at_ms"]) > after)
}

/// One bandwidth of a vector as a policy. The vectors write a quota in four ways.
fn builder(vector: &Value, name: &str, config: &Value) -> PolicyBuilder {
    let (algorithm, quota) = terms(vector["algorithm"].as_str().expect("a vector has an algorithm"), config);
    Policy::builder(name, algorithm, quota)
}

fn built(vector: &Value, name: &str, config: &Value) -> Policy {
    builder(vector, name, config).build().unwrap_or_else(|error| panic!("{}: {error}", vector["id"]))
}

fn terms(algorithm: &str, config: &Value) -> (Algorithm, Quota) {
    let window = || Quota::new(number(&config["limit"]), ms(number(&config["window_ms"])));
    match algorithm {
        "sliding_log" => (Algorithm::SlidingLog, window()),
        "sliding_counter" => (Algorithm::SlidingCounter, window()),
        "fixed_window" if config["anchor"] == "epoch" => (Algorithm::FixedWindow(Anchor::Epoch), window()),
        "fixed_window" => (Algorithm::FixedWindow(Anchor::FirstHit), window()),
        "leaky_bucket_meter" | "leaky_bucket_queue" => {
            let drain = if algorithm.ends_with("queue") { Drain::Queue } else { Drain::Meter };
            let quota = match config["rate_per_s"].as_u64() {
                // nginx does not count the request being served, so its burst of 1 is ours of 2.
                Some(rate) => Quota::per_second(rate).burst(number(&config["burst"]) + 1),
                None => window(),
            };
            (Algorithm::LeakyBucket(drain), quota)
        }
        _ => {
            let refill = if config["refill"] == "intervally" { Refill::Interval } else { Refill::Greedy };
            let quota = Quota::new(number(&config["refill_tokens"]), ms(number(&config["period_ms"])));
            let quota = quota.burst(number(&config["capacity"]));
            let start = config["initial_tokens"].as_u64().filter(|_| !config["id"].is_string());
            (Algorithm::TokenBucket(refill), start.map_or(quota, |start| quota.starting_with(start)))
        }
    }
}

/// Bandwidths with ids, as quotas of one policy behind a first one that never decides.
fn named(bandwidths: &[Value]) -> Policy {
    let mut policy = Policy::token_bucket("b0", Quota::per_second(1_000_000));
    for bandwidth in bandwidths {
        let id = bandwidth["id"].as_str().expect("either all bandwidths have ids or none");
        policy = policy.and(terms("token_bucket", bandwidth).1).named(id);
    }
    policy.build().expect("the quotas fit together")
}

/// Bucket4j leaves a bucket alone while the clock is behind its last refill. A theoretical arrival time has no last
/// refill: one millisecond back is one token less, and all of them are back with the time.
fn a_clock_that_steps_back_is_waited_out_and_not_frozen(vector: &Value) {
    let run = Run::new(vector);
    let remaining = |at_ms| {
        run.clock.set(ms(at_ms));
        answer(run.limiters[0].peek("k")).remaining()
    };
    assert_eq!((remaining(10_000), remaining(9_999), remaining(10_000)), (55, 54, 55));
}

/// Bucket4j's blocking calls may take more than a bucket holds. Here such a cost never passes, however it is asked.
fn more_than_the_burst_has_no_turn_at_all(vector: &Value) {
    let decision = Run::new(vector).take(&vector["steps"][0]);
    assert_eq!((decision.outcome(), decision.retry_after()), (Outcome::Impossible, None));
}

/// 2^59 units in 2^60 milliseconds are neither within ten years nor, in one day, exact.
fn a_capacity_of_2_to_the_59th_is_refused(vector: &Value) {
    let too_long = builder(vector, "big", &vector["config"]["bandwidths"][0]).build().expect_err("too long");
    assert!(too_long.to_string().contains("longer than ten years"), "{too_long}");
    let capacity = number(&vector["config"]["bandwidths"][0]["capacity"]);
    let inexact = Policy::token_bucket("big", Quota::per_day(capacity)).build().expect_err("inexact");
    assert_eq!(inexact.kind(), ConfigErrorKind::Inexact);
    assert!(inexact.to_string().contains("cannot be kept in exact integers"), "{inexact}");
}

/// Bucket4j can overfill a bucket; a refund here ends at rest, from where the replaced policy starts at rest too.
fn a_refund_never_lifts_a_key_above_rest(vector: &Value) {
    let run = Run::new(vector);
    assert_eq!(answer(run.limiters[0].refund("k", 10_000_000)).remaining(), 3);
    let decision = run.take(&vector["steps"][2]);
    check(&vector["steps"][2], &decision, "cfg-overflown");
}

/// Gubernator takes the difference off when a limit shrinks; Bucket4j, whose strategies these are, keeps what fits.
fn shrinking_keeps_what_fits_and_takes_no_difference(vector: &Value) {
    let run = Run::new(vector);
    let _ = answer(run.limiters[0].check("k").cost(2));
    let mut remaining = 98;
    for (limit, left) in [(10, 9), (200, 198)] {
        let mut config = vector["config"].clone();
        config["limit"] = limit.into();
        run.limiters[0].replace(built(vector, "b0", &config), Inherit::Additive).expect("the store takes it");
        remaining = answer(run.limiters[0].check("k")).remaining();
        assert_eq!(remaining, left, "under a limit of {limit}");
    }
    assert_eq!(remaining, 198);
}

/// In Bucket4j a bandwidth of another id starts full. Here it starts from what was spent, whatever its name.
fn a_quota_of_another_id_starts_from_the_most_spent_one(vector: &Value) {
    let (store, clock) = crate::support::store();
    let old = vector["config"]["bandwidths"].as_array().expect("it has bandwidths");
    let limiter = RateLimiter::new(&store, named(old)).expect("it fits");
    let _ = answer(limiter.charge("k", 3));
    clock.advance(ms(3));
    let to = vector["steps"][1]["to"].as_array().expect("a replacement says by what");
    limiter.replace(named(to), Inherit::AsIs).expect("it fits");
    assert_eq!(answer(limiter.peek("k")).remaining(), 1, "1.8 of three are back");
}
