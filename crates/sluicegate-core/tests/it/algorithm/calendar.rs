//! Quotas by the periods of a calendar, beside a slow model that goes from one border to the next.

use std::time::Duration;

use sluicegate_core::calendar::CalendarPeriod;
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::{Decision, MemoryStore, Outcome, Policy, Quota, RateLimiter};
use sluicegate_tests::random::Random;

use crate::support::{answer, us};

/// The first of January 2025, 00:00 UTC.
const NEW_YEAR: u64 = 1_735_689_600;
/// The year 2090: states after 2112 are too far ahead for a store in memory.
const LAST_US: u64 = 3_786_912_000_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// One key under a quota of a calendar: a period begins with the limit and the units that the one before has left, up to `carry`. A debt
/// ends with its period.
struct Model {
    period: CalendarPeriod,
    limit: i64,
    carry: i64,
    key: Option<KnownKey>,
}

#[derive(Clone, Copy)]
struct KnownKey {
    end_us: u64,
    /// Negative in debt.
    left: i64,
    /// The borders since it had all units, if nothing was spent since.
    borders_full: Option<i64>,
}

impl Model {
    fn of(quota: Quota) -> Self {
        let [limit, burst] =
            [quota.limit(), quota.burst_size()].map(|units| i64::try_from(units).expect("it is small"));
        Self { period: quota.calendar().expect("it has one"), limit, carry: burst - limit, key: None }
    }

    fn burst(&self) -> i64 {
        self.limit + self.carry
    }

    /// The key as it is now. An unknown key has the limit; a full one is forgotten after as many borders as a burst needs to come back.
    fn at(&self, now_us: u64) -> KnownKey {
        let end_us = self.period.around(now_us).1;
        let newcomer = KnownKey { end_us, left: self.limit, borders_full: None };
        let Some(mut key) = self.key else { return newcomer };
        while key.end_us <= now_us {
            self.cross(&mut key);
            if key.borders_full == Some((self.burst() + self.limit - 1) / self.limit) {
                return newcomer;
            }
        }
        key
    }

    fn cross(&self, key: &mut KnownKey) {
        key.end_us = self.period.around(key.end_us).1;
        key.left = self.limit + key.left.clamp(0, self.carry);
        let is_full = key.left == self.burst();
        key.borders_full = is_full.then(|| key.borders_full.map_or(0, |borders| borders + 1));
    }

    fn spend(&mut self, now_us: u64, cost: i64) {
        let key = self.at(now_us);
        let borders_full = key.borders_full.filter(|_| cost == 0);
        self.key = Some(KnownKey { left: key.left - cost, borders_full, ..key });
    }

    /// The time until so many units are left.
    fn until(&self, now_us: u64, units: i64) -> Duration {
        let (mut key, mut at_us) = (self.at(now_us), now_us);
        while key.left < units {
            at_us = key.end_us;
            self.cross(&mut key);
        }
        us(at_us - now_us)
    }

    fn assert_is(&self, decision: &Decision, now_us: u64, trace: &str) {
        let left = self.at(now_us).left.max(0);
        assert_eq!(i64::try_from(decision.remaining()).ok(), Some(left), "{trace}");
        assert_eq!(decision.reset_after(), self.until(now_us, self.burst()), "{trace}");
    }

    /// Checks the outcome of an ask, before it spends.
    fn assert_passes(&self, decision: &Decision, now_us: u64, cost: i64, trace: &str) -> bool {
        let passes = cost <= self.at(now_us).left;
        let (outcome, wait) = match passes {
            true => (Outcome::Allowed, None),
            false if cost > self.burst() => (Outcome::Impossible, None),
            false => (Outcome::Denied, Some(self.until(now_us, cost))),
        };
        assert_eq!((decision.outcome(), decision.retry_after()), (outcome, wait), "{trace}");
        passes
    }
}

fn limiter(clock: &ManualClock, quota: Quota) -> RateLimiter {
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("the settings are possible");
    Policy::gcra("any", quota).on(&store).expect("it fits")
}

fn units(number: i64) -> u64 {
    u64::try_from(number).expect("it is positive")
}

#[test]
fn memory_counts_periods_of_the_calendar_as_a_model_does_that_goes_from_border_to_border() {
    for (seed, unit) in (0..).zip(["day", "week from sunday", "month", "quarter", "year"]) {
        for zone in ["UTC", "Europe/Berlin", "Asia/Seoul"] {
            for carry in ["", " carry over 5", " carry over 20"] {
                let mut random = Random::new(seed);
                let clock = ManualClock::new();
                clock.set(Duration::from_secs(NEW_YEAR + random.below(40 * 86_400)));
                let quota: Quota = format!("10/{unit} in {zone}{carry}").parse().unwrap();
                let (limiter, mut model, mut trace) =
                    (limiter(&clock, quota), Model::of(quota), quota.to_string());
                let longest_us = u64::try_from(model.period.longest().as_micros()).unwrap();
                for _ in 0..200 {
                    let now_us = clock.now_us();
                    let (_, border_us) = model.period.around(now_us);
                    let now_us = match random.below(12) {
                        0 => border_us - 1,
                        1 => border_us,
                        2 => border_us + random.below(3 * HOUR_US),
                        3 => now_us + random.below(5 * longest_us),
                        4 => now_us + random.below(longest_us / 4),
                        _ => now_us,
                    };
                    if now_us > LAST_US {
                        break;
                    }
                    clock.set(us(now_us));
                    let (way, cost) = (random.below(8), i64::try_from(random.below(12) + 1).unwrap());
                    trace.push_str(&format!("\n{now_us}: {way} {cost}"));
                    let decision = match way {
                        0 => {
                            let cost = cost * 5;
                            let room = 10 * model.burst() - (model.burst() - model.at(now_us).left);
                            model.spend(now_us, cost.min(room));
                            answer(limiter.charge("ada", units(cost)))
                        }
                        1 => {
                            let decision = answer(limiter.peek("ada").cost(units(cost)));
                            model.assert_passes(&decision, now_us, cost, &trace);
                            decision
                        }
                        _ => {
                            let decision = answer(limiter.check("ada").cost(units(cost)));
                            let passes = model.assert_passes(&decision, now_us, cost, &trace);
                            model.spend(now_us, if passes { cost } else { 0 });
                            decision
                        }
                    };
                    model.assert_is(&decision, now_us, &trace);
                }
            }
        }
    }
}

/// Once, a debt lasted for as many periods as it had limits, and a key that idles had a month's units twice.
#[test]
fn a_debt_ends_with_its_period_and_unused_units_are_carried_over_once() {
    let day = |days: u64| Duration::from_secs(NEW_YEAR + days * 86_400);
    let clock = ManualClock::new();
    clock.set(day(34));
    let limiter = limiter(&clock, "10/month in UTC carry over 10".parse().unwrap());
    let all = |key: &str| {
        let left = answer(limiter.peek(key)).remaining();
        assert!(answer(limiter.check(key).cost(left)).is_allowed());
        left
    };
    assert!(answer(limiter.check("ada").cost(5)).is_allowed());
    assert_eq!(answer(limiter.charge("bob", 55)).remaining(), 0);
    assert_eq!(answer(limiter.peek("bob").cost(3)).retry_after(), Some(day(59) - day(34)));
    // On 30 March, and on the first of April, May and June.
    let granted = [88, 90, 120, 151].map(|days| {
        clock.set(day(days));
        (all("ada"), all("bob"))
    });
    assert_eq!(granted, [(15, 10), (10, 10), (10, 10), (10, 10)]);
    // The rest of July comes on top in August, and the rest of August in September. A full key is forgotten after two months.
    clock.set(day(182));
    assert!(answer(limiter.check("ada").cost(1)).is_allowed());
    let left = [213, 243, 244, 273, 304].map(|days| {
        clock.set(day(days));
        answer(limiter.peek("ada")).remaining()
    });
    assert_eq!(left, [19, 20, 20, 20, 10]);
}
