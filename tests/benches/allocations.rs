//! Allocations per operation. A bench of its own, for an allocator that counts costs time: up to four locked
//! instructions per allocation, which would be a third of what is measured elsewhere.

mod harness;

use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use sluicegate::limiter::check_all;
use sluicegate::observed::Observed;
use sluicegate::policy::PolicyBuilder;
use sluicegate::{Key, MemoryStore, Policy, Quota, RateLimiter};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::harness::{Aim, Bench, Row};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TIMES: u32 = 10_000;

fn main() -> ExitCode {
    let mut bench = Bench::from_args("Allocations per operation");
    assert!(per_operation(|_| drop(black_box(Box::new(1_u8)))) >= 1.0, "allocations are counted");
    decisions(&mut bench);
    bench.finish()
}

/// Allocations and reallocations per call, once the first calls have set up what stays.
fn per_operation(mut operation: impl FnMut(u32)) -> f64 {
    (0..1_000).for_each(&mut operation);
    let region = Region::new(ALLOCATOR);
    (0..TIMES).for_each(&mut operation);
    let seen = region.change();
    (seen.allocations + seen.reallocations) as f64 / f64::from(TIMES)
}

fn none(bench: &mut Bench, work: &str, operation: impl FnMut(u32)) {
    if bench.wants(work) {
        bench.record(Row::alone(work, "allocs", per_operation(operation), Aim::Ours(0.0)));
    }
}

fn decisions(bench: &mut Bench) {
    let store = MemoryStore::new();
    let on = |policy: PolicyBuilder| policy.on(&store).expect("the policy is possible");
    let check = |limiter: &RateLimiter, index: u32| {
        let digits = [b'0' + (index % 10) as u8, b'0' + (index / 10 % 10) as u8];
        let key = std::str::from_utf8(&digits).expect("digits are text");
        black_box(limiter.check(key).now().is_ok_and(|verdict| verdict.is_ok()));
    };
    for (what, policy) in [
        ("gcra", Policy::gcra("gcra", "1000000/s")),
        ("gcra, refused", Policy::gcra("refused", "1/h")),
        ("fixed window", Policy::fixed_window("window", "1000000/s")),
        ("sliding counter", Policy::sliding_counter("counter", "1000000/s")),
        ("sliding log", Policy::sliding_log("log", Quota::new(10_000, Duration::from_millis(1)))),
        ("token bucket", Policy::token_bucket("token", "1000000/s")),
        ("leaky queue", Policy::leaky_queue("queue", "1000000/s")),
        ("two quotas", Policy::gcra("two", "1000000/s").and("1000000/min")),
        ("four quotas", Policy::gcra("four", "9/s").and("99/min").and("999/h").and("9999/d")),
    ] {
        let limiter = on(policy);
        none(bench, &format!("decision, {what}"), |index| check(&limiter, index));
    }
    let observed = Observed::named("allocations", MemoryStore::new()).expect("the name is free");
    for (what, policy) in [
        ("observed", Policy::gcra("observed", "1000000/s")),
        ("observed, refused", Policy::gcra("observed-refused", "1/h")),
    ] {
        let limiter = policy.on(&observed).expect("the policy is possible");
        none(bench, &format!("decision, {what}"), |index| check(&limiter, index));
    }
    let [one, two, three] = ["one", "two", "three"].map(|name| on(Policy::gcra(name, "1000000/s")));
    let (ada, route) = (Key::from("ada"), Key::from(("ada", "/login")));
    none(bench, "three limiters together", |_| {
        let verdict = check_all([one.check(&ada), two.check(&route), three.check(&ada).cost(2)]);
        black_box(verdict.now().is_ok_and(|verdict| verdict.is_ok()));
    });
}
