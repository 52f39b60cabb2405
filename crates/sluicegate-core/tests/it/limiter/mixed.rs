//! Policies whose quotas are counted by different algorithms: each as its own algorithm says, and all of them or none.

use proptest::prelude::*;
use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::clock::Clock;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::{PolicyBuilder, Quotas};
use sluicegate_core::{Algorithm, Decision, OnOutage, Outcome, Policy, Quota, RateLimiter};
use sluicegate_tests::memory::store_for;

use crate::algorithm::exact::{Exact, exact};
use crate::support::{ALL, answer, is_queue, secs, store, us};

const MIDNIGHT: Algorithm = Algorithm::TokenBucket(Refill::AlignedInterval);

/// Bucket4j's example of several bandwidths.
fn api() -> PolicyBuilder {
    Policy::gcra("api", "100/min").and("1000/d by token-bucket-aligned").named("day")
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.quotas().iter().map(|quota| quota.remaining()).collect()
}

/// The algorithms that may count one of several quotas.
fn several() -> Vec<Algorithm> {
    ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)).collect()
}

fn pairs() -> Vec<(Algorithm, Algorithm)> {
    several().into_iter().flat_map(|one| several().into_iter().map(move |other| (one, other))).collect()
}

#[test]
fn a_minute_refills_bit_by_bit_and_a_day_at_midnight() {
    let (store, clock) = store();
    let api = api().on(&store).unwrap();
    // An hour before midnight.
    let now = secs(clock.now_us() / 1_000_000 / 86_400 * 86_400 + 23 * 3_600);
    clock.set(now);
    for minute in 0..10 {
        let spent = answer(api.check("ada").cost(100));
        assert_eq!(remaining(&spent), [0, 900 - minute * 100]);
        clock.advance(secs(60));
    }
    let refused = answer(api.check("ada"));
    assert_eq!((refused.outcome(), remaining(&refused)), (Outcome::Denied, vec![100, 0]));
    assert_eq!(refused.retry_after(), Some(secs(50 * 60)), "until midnight");
    clock.set(now + secs(3_600));
    assert_eq!(remaining(&answer(api.check("ada"))), [99, 999]);
    clock.advance(us(600_000));
    assert_eq!(remaining(&answer(api.check("ada"))), [99, 998], "the minute has gained one, the day none");
}

#[test]
fn a_policy_is_the_same_however_its_algorithms_are_said() {
    let own = Quota::per_day(1_000).counted_by(MIDNIGHT);
    let policy = api().build().unwrap();
    for same in [
        Policy::gcra("api", "100/min").and(own).named("day"),
        Policy::gcra("api", "100/min by gcra").and(own).named("day"),
        Policy::builder("api", MIDNIGHT, "100/min by gcra").and("1000/d").named("day"),
        Policy::sliding_log("api", "100/min by gcra").and(own).named("day"),
    ] {
        assert_eq!(same.build().unwrap(), policy);
    }
    assert_eq!(policy.to_string(), "api: 100/min, 1000/d by token-bucket-aligned (gcra)");
    let each: Vec<_> = policy.quotas().iter().map(|quota| quota.algorithm()).collect();
    assert_eq!((policy.algorithm(), each), (Algorithm::Gcra, vec![Algorithm::Gcra, MIDNIGHT]));
    // By the one for outages, too.
    let on_outage = OnOutage::Quota(Quota::per_second(5).burst(9));
    assert!(Policy::sliding_log("p", "5/min by gcra").on_outage(on_outage).build().is_ok());
    let one = Policy::gcra("p", "5/min by sliding-log").build().unwrap();
    assert_eq!(one, Policy::sliding_log("p", "5/min").build().unwrap());
    assert_eq!(
        policy.with_quotas(&policy.quotas().iter().map(|own| own.quota()).collect::<Vec<_>>()),
        Ok(policy)
    );
}

#[test]
fn a_policy_of_other_numbers_keeps_the_algorithm_of_each_quota() {
    let policy = api().build().unwrap();
    let wider = policy.with_quotas(&[Quota::per_minute(500), Quota::per_day(5_000)]).unwrap();
    assert_eq!(wider.to_string(), "api: 500/min, 5000/d by token-bucket-aligned (gcra)");
    let tenth = policy.share("api.ai", 1, 10).unwrap();
    assert_eq!(tenth.to_string(), "api.ai: 10/min, 100/d by token-bucket-aligned (gcra)");
    let halves = policy.split([("a".to_owned(), 1), ("b".to_owned(), 1)]).unwrap();
    assert_eq!(halves[1].to_string(), "b: 50/min, 500/d by token-bucket-aligned (gcra)");
    let first_hit = Policy::gcra("p", "100/min").and("9/h by token-bucket-interval").build().unwrap();
    let message = first_hit.split([("a".to_owned(), 1), ("b".to_owned(), 1)]).unwrap_err().to_string();
    assert!(message.contains("token-bucket-interval cannot be split into 2 parts"), "{message}");
}

#[test]
fn what_an_algorithm_cannot_keep_is_refused_where_it_is_named() {
    for (policy, place, reason) in [
        (
            Policy::gcra("p", "5/s burst 9").and("9/h burst 3 by sliding-log"),
            1,
            "sliding-log does not support a burst",
        ),
        (Policy::sliding_log("p", "5/s").and("9/h burst 3"), 1, "sliding-log does not support a burst"),
        (Policy::gcra("p", "5/s").and("9/h start 3 by fixed-window"), 1, "fixed-window starts full"),
        (Policy::gcra("p", "5/s").and("9/h by leaky-bucket-queue"), 1, "a queue has one quota"),
        (Policy::leaky_queue("p", "5/s").and("9/h by gcra"), 1, "a queue has one quota"),
        (
            Policy::gcra("p", "5/s").and("9/h").and("9/d by leaky-bucket-queue-above-2"),
            2,
            "a queue has one quota",
        ),
        (Policy::gcra("p", "5/s").and("9/h by midnight"), 1, "\"midnight\" does not say by which algorithm"),
    ] {
        let error = policy.build().unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.quota(), Some(place), "{error}");
    }
}

#[test]
fn quotas_of_a_key_are_counted_as_those_of_the_policy_and_convert_by_the_same_rule() {
    let (store, clock) = store();
    let midnight = secs(clock.now_us() / 1_000_000 / 86_400 * 86_400);
    clock.set(midnight);
    let api = api().on(&store).unwrap();
    let own = |quotas: &str| api.with_quotas(quotas);
    assert_eq!(remaining(&answer(api.check("ada").cost(60))), [40, 940]);
    let larger = own("500/min, 20000/d").unwrap();
    assert_eq!(remaining(&answer(larger.check("ada").cost(10))), [430, 19_930]);
    let day = own("day: 100/d by token-bucket-aligned").unwrap();
    let refused = answer(day.check("ada").cost(31));
    assert_eq!((refused.outcome(), remaining(&refused)), (Outcome::Denied, vec![30, 30]));
    clock.set(midnight + secs(86_400));
    assert_eq!(remaining(&answer(day.check("ada").cost(31))), [69, 69]);
    let error = own("day: 100/d by sliding-log").unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Policy);
    let message = error.to_string();
    assert!(
        message.contains("100/d by sliding-log, and the policy counts this quota by token-bucket-aligned"),
        "{message}"
    );
    assert_eq!(
        "500/min, day: 9/d by gcra".parse::<Quotas>().unwrap().to_string(),
        "500/min, day: 9/d by gcra"
    );
}

/// A quota follows the one of its rule or its id, from whichever algorithm that was counted by.
#[test]
fn a_replaced_policy_hands_on_what_each_quota_has_spent() {
    for (one, other) in pairs() {
        let (store, _) = store_for(64, 1 << 20);
        let policy = |hour: Algorithm, limit| {
            let hour = Quota::per_hour(limit).counted_by(hour);
            Policy::fixed_window("p", "50/h").named("window").and(hour).named("hour").build().unwrap()
        };
        let limiter = RateLimiter::new(&store, policy(one, 20)).unwrap();
        assert_eq!(remaining(&answer(limiter.check("k").cost(7))), [43, 13], "{one}");
        limiter.replace(policy(other, 30), Inherit::Spent).unwrap();
        assert_eq!(remaining(&answer(limiter.check("k"))), [42, 22], "{one} to {other}");
        limiter
            .replace(Policy::sliding_log("p", "50/h").named("window").build().unwrap(), Inherit::Spent)
            .unwrap();
        assert_eq!(remaining(&answer(limiter.peek("k"))), [42], "{one} to {other} to a log");
    }
}

/// A few quotas of different algorithms, beside the exact model of each.
struct Mixed {
    limiter: RateLimiter,
    models: Vec<Box<dyn Exact>>,
    bursts: Vec<u64>,
    counts_rejected: bool,
}

impl Mixed {
    fn all_pass(&self, now_us: u64, cost: u64) -> bool {
        self.models.iter().all(|model| model.passes(now_us, cost))
    }

    fn stands(&self, decision: &Decision, now_us: u64, cost: u64) {
        for ((status, model), burst) in decision.quotas().iter().zip(&self.models).zip(&self.bursts) {
            assert_eq!(
                (status.capacity(), status.remaining()),
                (*burst, model.remaining(now_us)),
                "{decision:?}"
            );
        }
        let Some(wait) = decision.retry_after() else { return };
        let then = now_us + u64::try_from(wait.as_micros()).expect("a wait fits");
        // Where refused requests count, a quota that had room may have none now: the wait is that of those that refused.
        let refused = decision.quotas().iter().zip(&self.models);
        let refused = refused.filter(|(status, _)| !self.counts_rejected || !status.passed());
        let all_pass = |then| refused.clone().all(|(_, model)| model.passes(then, cost));
        assert!(all_pass(then) && !all_pass(then - 1), "cost {cost}: {decision:?}");
    }

    fn check(&mut self, now_us: u64, cost: u64) {
        self.models.iter_mut().for_each(|model| model.observe(now_us));
        let outcome = match cost {
            cost if self.bursts.iter().any(|burst| cost > *burst) => Outcome::Impossible,
            cost if self.all_pass(now_us, cost) => Outcome::Allowed,
            _ => Outcome::Denied,
        };
        let decision = answer(self.limiter.check("k").cost(cost));
        assert_eq!(decision.outcome(), outcome, "cost {cost}: {decision:?}");
        for model in self.models.iter_mut().filter(|_| cost > 0) {
            match outcome {
                Outcome::Allowed => model.spend(now_us, cost),
                _ if self.counts_rejected => model.reject(now_us, cost),
                _ => {}
            }
        }
        self.stands(&decision, now_us, cost);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A cost passes where each quota's own model lets it pass, it is spent of all of them or of none, and the wait is that of the
    /// last to let it pass.
    #[test]
    fn each_quota_is_its_own_model_and_all_of_them_spend_or_none(
        quotas in prop::collection::vec(
            (prop::sample::select(several()), 1..40_u64, prop::sample::select(vec![7_u64, 60, 1_000, 86_400_000]), any::<bool>()),
            2..5,
        ),
        counts_rejected in any::<bool>(),
        steps in prop::collection::vec((0..4_u8, 0..120_u64, 0..8_u64), 1..60),
    ) {
        let (store, clock) = store_for(8, 1 << 16);
        let mut builder: Option<PolicyBuilder> = None;
        let (mut models, mut bursts) = (Vec::new(), Vec::new());
        for (place, (algorithm, limit, period_ms, is_bursty)) in quotas.iter().enumerate() {
            let quota = Quota::new(*limit, us(period_ms * 1_000));
            let takes_burst = matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_));
            let quota = if *is_bursty && takes_burst { quota.burst(limit * 2) } else { quota };
            models.push(exact(*algorithm, quota));
            bursts.push(quota.burst_size());
            let quota = quota.counted_by(*algorithm);
            let policy = match builder {
                None => Policy::builder("p", Algorithm::FixedWindow(Anchor::FirstHit), quota),
                Some(policy) => policy.and(quota),
            };
            builder = Some(policy.named(format!("q{place}")));
        }
        let builder = builder.expect("there are at least two");
        let builder = if counts_rejected { builder.count_rejected() } else { builder };
        let mut mixed = Mixed { limiter: builder.on(&store).expect("it fits"), models, bursts, counts_rejected };
        for (kind, span, cost) in steps {
            let (_, _, period_ms, _) = quotas[usize::try_from(span).unwrap_or(0) % quotas.len()];
            match kind {
                0 => clock.advance(us(period_ms * 1_000 * span / 100)),
                1 => clock.advance(us(span)),
                _ => {}
            }
            let least = *mixed.bursts.iter().min().expect("there are at least two");
            mixed.check(clock.now_us(), if cost == 7 { least } else { cost });
        }
    }
}
