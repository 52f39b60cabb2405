//! Random traces, each step compared with the exact model of the algorithm: outcome, remainder and every wait.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::{Algorithm, Decision, Outcome, Policy, Quota, RateLimiter};

use crate::algorithm::exact::{Exact, exact};
use crate::support::{START, answer, store_for, us};

macro_rules! traces {
    ($($name:ident: $algorithm:expr;)*) => {
        $(
            #[test]
            fn $name() {
                decides_as_the_model($algorithm, false, quota($algorithm));
            }
        )*

        mod where_refused_requests_count {
            use super::*;

            $(
                #[test]
                fn $name() {
                    decides_as_the_model($algorithm, true, quota($algorithm));
                }
            )*
        }
    };
}

traces! {
    gcra_is_its_theoretical_arrival_time: Algorithm::Gcra;
    a_greedy_token_bucket_refills_continuously: Algorithm::TokenBucket(Refill::Greedy);
    an_interval_token_bucket_refills_at_its_instants: Algorithm::TokenBucket(Refill::Interval);
    an_aligned_token_bucket_refills_on_whole_periods: Algorithm::TokenBucket(Refill::AlignedInterval);
    a_leaky_bucket_is_a_meter: Algorithm::LeakyBucket(Drain::Meter);
    a_leaky_queue_keeps_its_departure_schedule: Algorithm::LeakyBucket(Drain::Queue);
    a_leaky_queue_delays_above_its_threshold: Algorithm::LeakyBucket(Drain::QueueAbove(2));
    a_fixed_window_counts_per_window: Algorithm::FixedWindow(Anchor::Epoch);
    a_window_from_the_first_hit_counts_from_there: Algorithm::FixedWindow(Anchor::FirstHit);
    a_sliding_counter_weighs_two_windows: Algorithm::SlidingCounter;
    a_sliding_log_counts_what_it_lists: Algorithm::SlidingLog;
    a_log_in_twenty_parts_counts_each_from_its_last: Algorithm::SlidingLogIn(20);
    a_log_in_seven_parts_counts_each_from_its_last: Algorithm::SlidingLogIn(7);
    a_log_in_one_part_counts_from_its_last: Algorithm::SlidingLogIn(1);
}

macro_rules! newcomers {
    ($($name:ident: $algorithm:expr;)*) => {
        mod where_newcomers_start_with_less_than_a_burst {
            use super::*;

            $(
                #[test]
                fn $name() {
                    for counts_rejected in [false, true] {
                        decides_as_the_model($algorithm, counts_rejected, starting($algorithm));
                    }
                }
            )*
        }
    };
}

newcomers! {
    gcra_begins_with_an_arrival_time: Algorithm::Gcra;
    a_greedy_token_bucket_begins_with_fewer: Algorithm::TokenBucket(Refill::Greedy);
    an_interval_token_bucket_begins_with_fewer: Algorithm::TokenBucket(Refill::Interval);
    an_aligned_token_bucket_begins_with_fewer: Algorithm::TokenBucket(Refill::AlignedInterval);
    a_leaky_bucket_begins_with_units_in_it: Algorithm::LeakyBucket(Drain::Meter);
}

/// Costs are chosen relative to the quota and to what is left, where decisions tip over.
#[derive(Clone, Copy, Debug)]
enum Cost {
    Units(u64),
    Percent(u64),
    Remaining,
    OneTooMany,
    Burst,
    AboveBurst,
}

/// Spans are chosen relative to the quota, for most absolute ones mean nothing to it.
#[derive(Clone, Copy, Debug)]
enum Span {
    Us(u64),
    PercentOfSpacing(u64),
    PercentOfPeriod(u64),
    Idle,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(Span),
    Back(u64),
    Spend(Cost),
    Peek(Cost),
    Charge(Cost),
    Refund(Cost),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let cost = || {
        prop_oneof![
            4 => (0..=3_u64).prop_map(Cost::Units),
            4 => (1..=100_u64).prop_map(Cost::Percent),
            3 => Just(Cost::Remaining),
            3 => Just(Cost::OneTooMany),
            1 => Just(Cost::Burst),
            1 => Just(Cost::AboveBurst),
        ]
    };
    let span = prop_oneof![
        2 => (0..=3_u64).prop_map(Span::Us),
        2 => (0..=2_000_000_u64).prop_map(Span::Us),
        4 => (1..=300_u64).prop_map(Span::PercentOfSpacing),
        4 => (1..=250_u64).prop_map(Span::PercentOfPeriod),
        1 => Just(Span::Idle),
    ];
    prop_oneof![
        5 => span.prop_map(Step::Advance),
        1 => prop_oneof![0..=3_u64, 0..=1_000_000_u64, 0..=10_000_000_u64].prop_map(Step::Back),
        10 => cost().prop_map(Step::Spend),
        2 => cost().prop_map(Step::Peek),
        2 => cost().prop_map(Step::Charge),
        2 => cost().prop_map(Step::Refund),
        1 => Just(Step::Reset),
    ]
}

/// Any limit up to a million with any period from a millisecond to 30 days, round and awkward ones.
pub(crate) fn quota(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    let longest = if algorithm == Algorithm::SlidingLog { 4_096 } else { 1_000_000 };
    let awkward = [1, 2, 3, 7, 997, 7_919, 65_537, 999_983, 1_000_000].map(|limit| limit.min(longest));
    let limit = prop_oneof![1..=10_u64, 1..=longest, prop::sample::select(awkward.to_vec())];
    let ms = 1_000_u64;
    let month = 2_592_000_000 * ms;
    let period = prop_oneof![
        // Odd microseconds are exact for short periods; longer ones are in whole milliseconds.
        1_000..=10_000_000_u64,
        (1..=2_592_000_000_u64).prop_map(move |period| period * ms),
        prop::sample::select(vec![ms, 1_000 * ms, 60_000 * ms, 3_600_000 * ms, month - ms, month]),
    ];
    let burst = prop_oneof![Just(None), (1..=10_u64).prop_map(Some), (1..=1_000_000_u64).prop_map(Some)];
    (limit, period, burst).prop_map(move |(limit, period, burst)| {
        let quota = Quota::new(limit, us(period));
        let is_bucket =
            matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_));
        // Not above twenty limits, so that ten years refill it and the model's refills one by one are done soon.
        let burst = burst.filter(|_| is_bucket);
        burst.map_or(quota, |burst| quota.burst(burst.min(limit * 20)))
    })
}

/// The same, under which a key that is not known starts with less.
fn starting(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    (quota(algorithm), 0..100_u64)
        .prop_map(|(quota, percent)| quota.starting_with(quota.burst_size() * percent / 100))
}

fn decides_as_the_model(algorithm: Algorithm, counts_rejected: bool, quotas: impl Strategy<Value = Quota>) {
    let config = Config { failure_persistence: None, ..Config::default() };
    let traces = (quotas, 0..100_000_000_u64, prop::collection::vec(step(), 1..50));
    let outcome = TestRunner::new(config).run(&traces, |(quota, start, steps)| {
        let mut trace = Trace::new(algorithm, quota, start, counts_rejected);
        steps.into_iter().for_each(|step| trace.take(step));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{algorithm}: {failure}");
    }
}

struct Trace {
    algorithm: Algorithm,
    quota: Quota,
    clock: ManualClock,
    limiter: RateLimiter,
    model: Box<dyn Exact>,
    counts_rejected: bool,
    /// When the key is full, or was; never if it is not known. Only where newcomers start with less than a burst.
    full_at: Option<u64>,
    /// Whether a newcomer is only looked at.
    is_peeked: bool,
    /// Whether something was to be spent, which makes a newcomer known.
    is_asked: bool,
}

impl Trace {
    fn new(algorithm: Algorithm, quota: Quota, start: u64, counts_rejected: bool) -> Self {
        // A sixteenth of the entries is the longest log.
        let entries = usize::try_from(quota.limit()).expect("a limit fits").min(4_096) * 16;
        let (store, clock) = store_for(8, entries);
        clock.set(START + us(start));
        let policy = Policy::builder("trace", algorithm, quota);
        let policy = if counts_rejected { policy.count_rejected() } else { policy };
        let limiter = policy.on(&store).expect("the policy fits the store");
        Self {
            algorithm,
            quota,
            clock,
            limiter,
            model: exact(algorithm, quota),
            counts_rejected,
            full_at: None,
            is_peeked: false,
            is_asked: false,
        }
    }

    fn now(&self) -> u64 {
        self.clock.now_us()
    }

    fn cost(&self, cost: Cost) -> u64 {
        let (burst, remaining) = (self.quota.burst_size(), self.model.remaining(self.now()));
        match cost {
            Cost::Units(units) => units,
            Cost::Percent(percent) => (burst * percent / 100).max(1),
            Cost::Remaining => remaining.max(1),
            Cost::OneTooMany => remaining + 1,
            Cost::Burst => burst,
            Cost::AboveBurst => burst + 1,
        }
    }

    fn span(&self, span: Span) -> Duration {
        let (period, limit, burst) = (self.quota.period(), self.quota.limit(), self.quota.burst_size());
        let micros = |nanos: u128| us(u64::try_from(nanos / 1_000).expect("a span fits"));
        match span {
            Span::Us(span) => us(span),
            Span::PercentOfSpacing(percent) => {
                micros(period.as_nanos() * u128::from(percent) / 100 / u128::from(limit))
            }
            Span::PercentOfPeriod(percent) => micros(period.as_nanos() * u128::from(percent) / 100),
            Span::Idle => micros(period.as_nanos() * u128::from(2 + 3 * burst / limit)),
        }
    }

    /// Whether the key is known: it was full, if at all, for less time than a full burst takes to refill.
    fn is_known(&self) -> bool {
        let Some(_) = self.quota.start() else { return true };
        let mut emptied = exact(self.algorithm, self.quota);
        emptied.spend(0, self.quota.burst_size());
        let keep = self.fills(&*emptied, 0);
        self.full_at.is_some_and(|full_at| self.now() < full_at + keep)
    }

    /// A key that was not known until now.
    fn newcomer(&self) -> Box<dyn Exact> {
        let mut model = exact(self.algorithm, self.quota);
        if let Some(start) = self.quota.start() {
            model.spend(self.now(), self.quota.burst_size() - start);
        }
        model
    }

    /// The first moment from `now` on at which a model is full.
    fn fills(&self, model: &dyn Exact, now: u64) -> u64 {
        let is_full = |after: u64| model.passes(now + after, self.quota.burst_size());
        let mut most = 1;
        while !is_full(most) {
            most *= 2;
        }
        let (mut least, mut most) = (0, most);
        while least < most {
            let middle = (least + most) / 2;
            (least, most) = if is_full(middle) { (least, middle) } else { (middle + 1, most) };
        }
        now + least
    }

    /// A key that is not known is a newcomer for this step, and known from then on if something was asked of it.
    fn take(&mut self, step: Step) {
        if let Step::Advance(_) | Step::Back(_) = step {
            return self.carry_out(step);
        }
        let is_known = self.is_known();
        let was_full = is_known && self.model.remaining(self.now()) == self.quota.burst_size();
        let newcomer = self.newcomer();
        let before = if is_known { None } else { Some(std::mem::replace(&mut self.model, newcomer)) };
        (self.is_peeked, self.is_asked) = (!is_known && matches!(step, Step::Peek(_)), false);
        self.carry_out(step);
        match (step, before) {
            (Step::Reset, _) => self.full_at = None,
            (_, Some(before)) if !self.is_asked => self.model = before,
            (Step::Peek(_) | Step::Refund(_), None) => {}
            _ if was_full && self.model.remaining(self.now()) == self.quota.burst_size() => {}
            _ => self.full_at = Some(self.fills(&*self.model, self.now())),
        }
    }

    fn carry_out(&mut self, step: Step) {
        let now = self.now();
        match step {
            Step::Advance(span) => self.clock.advance(self.span(span)),
            Step::Back(span) => self.clock.set(us(now - span)),
            Step::Spend(cost) => {
                let cost = self.cost(cost);
                self.spend(cost);
            }
            Step::Peek(cost) => {
                let cost = self.cost(cost);
                let decision = answer(self.limiter.peek("k").cost(cost));
                self.model.observe(now);
                self.judge(&decision, cost);
                self.after(&decision, cost);
            }
            Step::Charge(cost) => {
                let cost = self.cost(cost).min(self.quota.burst_size());
                if self.may_owe(cost) {
                    let decision = answer(self.limiter.charge("k", cost));
                    self.is_asked = true;
                    self.model.observe(now);
                    self.enter(now, cost);
                    self.stands(&decision);
                }
            }
            Step::Refund(cost) => {
                let cost = self.cost(cost);
                let decision = answer(self.limiter.refund("k", cost));
                self.model.observe(now);
                self.refund(now, cost);
                self.stands(&decision);
            }
            Step::Reset => {
                let decision = answer(self.limiter.reset("k"));
                self.model = self.newcomer();
                self.stands(&decision);
            }
        }
    }

    /// Where newcomers start with less than a burst, nothing is given back to one of them, nor to a key that is full.
    fn refund(&mut self, now: u64, cost: u64) {
        let burst = self.quota.burst_size();
        if self.quota.start().is_none() {
            self.model.refund(now, cost);
        } else if self.is_known() && self.model.remaining(now) < burst {
            self.model.refund(now, cost);
            let is_full = self.model.remaining(now) == burst;
            let full_at = if is_full { self.model.fill(now) } else { self.fills(&*self.model, now) };
            self.full_at = Some(full_at);
        }
    }

    fn spend(&mut self, cost: u64) {
        let now = self.now();
        self.model.observe(now);
        let departs = self.model.departs(now);
        self.is_asked = true;
        let decision = answer(self.limiter.check("k").cost(cost));
        self.judge(&decision, cost);
        if decision.is_allowed() {
            self.enter(now, cost);
            assert_eq!(decision.delay(), us(departs - now), "the delay of {decision:?}");
        } else if self.counts_rejected && cost > 0 {
            self.model.reject(now, cost);
        }
        self.after(&decision, cost);
    }

    /// What spends nothing changes nothing: a key that is at rest by now may not be so by a clock that steps back.
    fn enter(&mut self, now: u64, cost: u64) {
        if cost > 0 {
            self.model.spend(now, cost);
        }
    }

    /// Debts saturate at 2^52 parts of time, which for some quotas is little more than a burst; and a window's at
    /// two limits. The traces stay below.
    fn may_owe(&self, cost: u64) -> bool {
        let burst = self.quota.burst_size();
        let one_burst = u128::from(burst) * self.quota.period().as_micros();
        self.model.passes(self.now(), burst.min(cost))
            || (self.model.remaining(self.now()) > 0 && one_burst * 2 < 1 << 52)
    }

    fn judge(&self, decision: &Decision, cost: u64) {
        let outcome = match cost {
            cost if cost > self.quota.burst_size() => Outcome::Impossible,
            cost if self.model.passes(self.now(), cost) => Outcome::Allowed,
            _ => Outcome::Denied,
        };
        assert_eq!(decision.outcome(), outcome, "cost {cost}: {decision:?}");
    }

    /// What the decision says about now and later, once the model has been told.
    fn after(&mut self, decision: &Decision, cost: u64) {
        self.stands(decision);
        assert_eq!(decision.retry_after().is_some(), decision.outcome() == Outcome::Denied);
        let Some(wait) = decision.retry_after() else { return };
        self.comes_true(wait, cost);
        // A newcomer that was only looked at stays one.
        if self.is_peeked {
            return;
        }
        // The wait is sufficient and no shorter one is, as the limiter itself says when asked then.
        let now = us(self.now());
        for (then, passes) in [(now + wait - us(1), false), (now + wait, true)] {
            self.clock.set(then);
            assert_eq!(
                answer(self.limiter.peek("k").cost(cost)).is_allowed(),
                passes,
                "{decision:?} at {then:?}"
            );
        }
        // A log forgets what it has seen to be over, so its clock stays there.
        if matches!(self.algorithm, Algorithm::SlidingLog | Algorithm::SlidingLogIn(_)) {
            self.model.observe(self.now());
        } else {
            self.clock.set(now);
        }
    }

    fn stands(&self, decision: &Decision) {
        let now = self.now();
        let (status, full) = (decision.deciding(), self.quota.burst_size());
        assert_eq!(status.capacity(), full);
        assert_eq!(status.remaining(), self.model.remaining(now), "{decision:?}");
        let reset = u64::try_from(status.reset_after().as_micros()).expect("a wait fits");
        assert_eq!(self.model.remaining(now + reset), full, "{decision:?}");
        assert!(reset == 0 || self.model.remaining(now + reset - 1) < full, "{decision:?}");
        if decision.is_allowed() && status.remaining() < full {
            self.comes_true(status.available_after(), status.remaining() + 1);
        }
    }

    /// The cost passes after this wait and not a microsecond sooner.
    fn comes_true(&self, wait: Duration, cost: u64) {
        let then = self.now() + u64::try_from(wait.as_micros()).expect("a wait fits");
        assert!(self.model.passes(then, cost), "cost {cost} does not pass after {wait:?}");
        assert!(wait.is_zero() || !self.model.passes(then - 1, cost), "cost {cost} passes before {wait:?}");
    }
}
