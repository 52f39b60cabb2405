//! What is known of one policy: [`Meter`], under whatever rule it was opened.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::answer::{Answer, Judgement};
use super::counts::Counts;
use super::offenders::Offenders;
use super::rates::{Rates, Recent};
use super::snapshot::{Minute, PolicySnapshot, Rate, Totals};
use crate::clock::Clock;
use crate::decision::QuotaStatus;
use crate::key::KeyRef;
use crate::limiter::RateLimiter;

/// What is counted of a policy. It belongs to the name: a policy that replaces another one goes on counting.
pub(super) struct Meter {
    name: String,
    clock: Arc<dyn Clock>,
    counts: Counts,
    rates: Rates,
    offenders: Offenders,
}

/// A refusal, for whoever wants to know which keys are refused most.
#[derive(Clone, Copy)]
pub(super) struct Refusal<'a> {
    pub(super) key: KeyRef<'a>,
    pub(super) answer: Answer,
    pub(super) retry_after: Option<Duration>,
}

impl Meter {
    pub(super) fn new(policy: &str, clock: Arc<dyn Clock>) -> Self {
        let rates = Rates::new(clock.now_us());
        Self { name: policy.to_owned(), clock, counts: Counts::new(), rates, offenders: Offenders::new() }
    }

    /// Counts a request that was decided at this time of the store's clock.
    #[inline]
    pub(super) fn request(&self, judgement: &Judgement, is_shadow: bool, at_us: u64) {
        if self.rates.are_due(at_us) {
            // By the clock of all policies: that of the store is another one.
            self.rates.turn(self.clock.now_us(), || self.totals());
        }
        self.counts.request(judgement, is_shadow);
    }

    /// Takes note of whose request was refused. It is called by whichever thread has the answer, often in the middle of a request.
    pub(super) fn refused(&self, refusal: Refusal<'_>) {
        let Refusal { key, answer, retry_after } = refusal;
        self.offenders.refused(key, retry_after, answer == Answer::Suspended, self.rates.now_us());
        tracing::debug!(
            policy = self.name,
            result = answer.as_str(),
            ?key,
            ?retry_after,
            "a request was refused"
        );
    }

    /// Takes note of a request that was looked at by chance: whose it was, and where its quotas stand.
    pub(super) fn asked<'a>(&self, key: KeyRef<'_>, quotas: impl Iterator<Item = &'a QuotaStatus>) {
        self.offenders.asked(key, quotas, self.rates.now_us());
    }

    pub(super) fn offenders(&self) -> &Offenders {
        &self.offenders
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn totals(&self) -> Totals {
        self.counts.sums().totals()
    }

    pub(super) fn snapshot(&self, limiter: &RateLimiter) -> PolicySnapshot {
        let (sums, now_us) = (self.counts.sums(), self.clock.now_us());
        let Recent { seconds, minutes } = self.rates.recent(now_us, || sums.totals());
        PolicySnapshot {
            policy: limiter.policy(),
            totals: sums.totals(),
            units: sums.units(),
            near: sums.near(),
            per_second: rate(&seconds),
            minutes: minutes.iter().map(|(at, totals)| minute(*at, totals)).collect(),
            waiting: limiter.waiting(),
            suspended_seen: 0,
            offenders: self.offenders.most_refused(now_us),
            askers: self.offenders.most_asking(now_us),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn rate(in_10_s: &Totals) -> Rate {
    let of = |count: u64| count as f64 / 10.0;
    Rate {
        allowed: of(in_10_s.allowed),
        rejected: of(in_10_s.rejected + in_10_s.impossible),
        delayed: of(in_10_s.delayed),
        suspended: of(in_10_s.suspended),
    }
}

fn minute(at_s: u64, totals: &Totals) -> Minute {
    Minute {
        at: UNIX_EPOCH + Duration::from_secs(at_s),
        allowed: totals.allowed + totals.delayed,
        rejected: totals.rejected + totals.impossible + totals.suspended,
    }
}
