//! The fields of Spring Cloud Gateway: [`Tokens`].
//!
//! Its rates are whole numbers of tokens a second. In Spring, requests under a slower quota take several tokens
//! each: five a minute is a rate of 1, a capacity of 60 and 12 requested tokens. This module does so for any quota, with the
//! largest token that gives a whole number each second.

use http::header::{HeaderMap, HeaderValue};
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::QuotaStatus;

use crate::respond::decided::Shown;
use crate::respond::headers::join::{BURST_CAPACITY, REPLENISH_RATE, REQUESTED_TOKENS, units};
use crate::respond::headers::style::{Already, LIMIT, REMAINING, RESET};
use crate::respond::headers::write::number;

/// Writes the state of the quota that clients see.
#[cold]
pub(super) fn write(headers: &mut HeaderMap, shown: Shown<'_>, _: Option<u64>, already: Already) {
    if let Some(standing) = shown.status
        && let Some(quota) = shown.decided.quota_of(standing)
    {
        Tokens::of(standing, quota).write(headers, already);
    }
}

/// The state of a quota, in tokens.
struct Tokens {
    /// Remaining units.
    remaining: u64,
    capacity: u64,
    /// Tokens per second.
    per_second: u64,
    /// Tokens per unit.
    per_unit: u64,
}

impl Tokens {
    fn of(standing: &QuotaStatus, quota: &PolicyQuota) -> Self {
        const SECOND_US: u128 = 1_000_000;
        let (units, period_us) = (u128::from(quota.quota().limit()), quota.quota().period().as_micros());
        let in_a_second = units.saturating_mul(SECOND_US);
        let shared = gcd(in_a_second, period_us).max(1);
        let whole = |tokens: u128| u64::try_from(tokens / shared).unwrap_or(u64::MAX);
        Self {
            remaining: standing.remaining(),
            capacity: standing.capacity(),
            per_second: whole(in_a_second),
            per_unit: whole(period_us).max(1),
        }
    }

    /// Writes the fields, unless the service's own fields leave fewer requests.
    fn write(self, headers: &mut HeaderMap, already: Already) {
        let theirs = headers.get(REMAINING).and_then(|theirs| units(theirs, headers));
        if theirs.is_some_and(|theirs| already.leaves_less(theirs, self.remaining)) {
            return;
        }
        // These fields are about another quota than the one shown now.
        for name in [LIMIT, RESET] {
            headers.remove(name);
        }
        let tokens = |units: u64| number(units.saturating_mul(self.per_unit));
        let mut set = |name, value: HeaderValue| drop(headers.insert(name, value));
        set(REMAINING, tokens(self.remaining));
        set(REPLENISH_RATE, number(self.per_second));
        set(BURST_CAPACITY, tokens(self.capacity));
        set(REQUESTED_TOKENS, number(self.per_unit));
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
