//! A limit per period: [`Quota`], as numbers and as text.

mod text;

use std::time::Duration;

use crate::algorithm::{Algorithm, Anchor, Refill};
use crate::calendar::CalendarPeriod;
use crate::error::ConfigError;

/// A limit in units per period, with a burst that may be spent at once from rest.
///
/// `Quota::per_second(60)` is sixty a second. The same as text: `"60/s"`, `"60 per second"`, `"60/s
/// burst 120"`, `"1000/1h"`. A quota prints as the text that reads back as the same quota.
///
/// The constructors take any number; a quota that cannot work (a zero, a burst that the algorithm
/// does not know, products that would not be exact) is refused with its reason when the policy is
/// built. Text is checked when it is parsed.
///
/// | part | means | default | bounds |
/// |---|---|---|---|
/// | limit | units per period, the average rate | | at least 1; 10^6 under a sliding log |
/// | period | the span that the limit is for | | 1 microsecond to ten years |
/// | burst | units that may be spent at once from rest | the limit | at least 1; buckets only |
/// | start | units of a key that is unknown to the store | the burst | at most the burst; buckets only, no queues |
/// | by | the [algorithm](crate::Algorithm) that counts it | its policy's | any that accepts the quota |
///
/// A quota cannot refuse everything: use `deny` of a layer or of a rules file for that.
///
/// The limit does not bound every span of one period: [`Algorithm`](crate::Algorithm) has a
/// table of the most that each algorithm admits in a span.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::Quota;
///
/// let quota: Quota = "10/s burst 20".parse()?;
/// assert_eq!(quota, Quota::per_second(10).burst(20));
/// assert_eq!(Quota::new(5, Duration::from_secs(90)).to_string(), "5/90s");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// The burst and the rate are separate knobs. Both of these average ten a second, and only the
/// second spreads them out:
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// for (name, quota, at_once) in [("bursty", "10/s", 10), ("smooth", "10/s burst 1", 1)] {
///     let limiter = Policy::gcra(name, quota).on(&store)?;
///     let decision = limiter.peek("ada").now().expect("memory answers at once")?;
///     assert_eq!(decision.capacity(), at_once);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u64,
    period: Duration,
    burst: u64,
    start: Option<u64>,
    algorithm: Option<Algorithm>,
    calendar: Option<CalendarPeriod>,
}

impl Quota {
    /// `limit` units per `period`; the burst is the limit.
    ///
    /// Any period of at least a microsecond works with the buckets, even a third of a second: it is
    /// kept as an exact ratio. Windows need whole microseconds.
    pub const fn new(limit: u64, period: Duration) -> Self {
        Self { limit, period, burst: limit, start: None, algorithm: None, calendar: None }
    }

    /// `limit` units a second.
    pub const fn per_second(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` units a minute.
    pub const fn per_minute(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` units an hour.
    pub const fn per_hour(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(3_600))
    }

    /// `limit` units in 24 hours.
    /// As a fixed window it begins at midnight UTC, not local time.
    pub const fn per_day(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(86_400))
    }

    /// `limit` units in each period of the calendar, such as a month in a time zone.
    ///
    /// It is counted by a fixed window with the borders of the calendar, whatever the algorithm of its policy; a debt ends with its period. As text
    /// `1000000/month`, `100/day in Asia/Seoul`, `5/week from monday`, `20/quarter`, `50/year in UTC`. [`period`](Self::period) is the
    /// longest of the periods.
    pub fn in_calendar(limit: u64, period: CalendarPeriod) -> Self {
        let quota = Self { calendar: Some(period), ..Self::new(limit, period.longest()) };
        quota.counted_by(Algorithm::FixedWindow(Anchor::Epoch))
    }

    /// Carries unused units of one period over to the next, up to `units`. As text `carry over 200`, or `carry over 20%` of the limit.
    ///
    /// A period begins with the limit plus the unused units, at most `units` of them: the unused units of several idle periods do not add up
    /// beyond that. Carried units are like all others: unused ones are carried over again. In periods of a calendar, a debt ends with its
    /// period.
    ///
    /// It is short for a token bucket that is refilled at the borders, with a burst of the limit plus `units`, in which newcomers
    /// [start](Self::starting_with) with the limit. So a key that is unknown to the store has the limit, and a full key is forgotten
    /// as many periods after it became full as fill a burst, and has the limit again: with a tenth of the limit carried over, a key that
    /// spends nothing has eleven tenths in two periods, and then ten. A request that spends nothing, such as a refused one, does not
    /// prolong this, but makes a forgotten key known again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy, Quota};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::builder().clock(clock.clone()).build()?;
    /// let tokens = Policy::gcra("tokens", Quota::per_day(100).carrying_over(20)).on(&store)?;
    /// let spend = |cost| tokens.check("ada").cost(cost).now().expect("memory answers at once");
    /// assert_eq!(spend(70)?.remaining(), 30);
    /// clock.advance(Duration::from_secs(86_400));
    /// assert_eq!(spend(100)?.remaining(), 20); // 20 of 30 were carried over
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn carrying_over(self, units: u64) -> Self {
        let limit = self.limit;
        self.burst(limit.saturating_add(units))
            .starting_with(limit)
            .counted_by(Algorithm::TokenBucket(Refill::AlignedInterval))
    }

    /// Sets how many units may be spent at once from rest. Default: the limit.
    ///
    /// Only the buckets (token bucket, leaky bucket, GCRA) take a burst that differs from the limit.
    ///
    /// With a burst of 1, units pass one by one, `period / limit` apart. A burst above the limit
    /// saves up for longer than a period: `"10/s burst 600"` takes a minute to fill.
    #[must_use]
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = burst;
        self
    }

    /// Sets the units of a key that is unknown to the store, a newcomer: 0 to the burst. Default: the burst. As text `start 10`.
    ///
    /// A newcomer has `units`, and gains more at the rate up to the burst, like any key. It is known from the first request that
    /// the store decides, allowed or refused; a [peek](crate::RateLimiter::peek) shows the units of a newcomer and does not make the key known, and
    /// neither does a request that another limit refuses before the store is asked. So new
    /// accounts and unseen addresses cannot begin with a burst, and known clients can.
    ///
    /// # When a key is forgotten
    /// A full key is remembered for as long as a full burst takes to refill, counted from the moment at which it was
    /// full. After that it is a newcomer again. With `"60/min burst 100 start 10"` that is a hundred seconds after the bucket was
    /// full: a key that comes every few minutes stays known, and a key that comes once an hour has 10 units each time. A key is a newcomer
    /// sooner if the store forgets it sooner: after a [reset](crate::RateLimiter::reset), after a restart of a process that counts in memory, and when a
    /// full table [makes room](crate::MemoryStore#memory), which forgets full keys first. Newcomers lack units and so take room: if many of them
    /// may come, give the table room for [more keys](crate::policy::PolicyBuilder::table_size). No more is admitted by that than with a burst from rest.
    ///
    /// A refund gives nothing to a newcomer or to a full key; a charge counts on top of the units that a newcomer lacks.
    ///
    /// # Algorithms
    /// GCRA, token buckets with any refill, and the refusing leaky bucket support it. Windows, counters and logs start full, and a
    /// queue would delay its first request: they refuse a start below the burst when the policy is built, and so does
    /// [`OnFull::Inherit`](crate::policy::OnFull::Inherit). A [share](crate::Policy::share) of the policy has its share of the start, rounded down.
    /// [`split`](crate::Policy::split) refuses it, and leases are not taken, because only the store knows
    /// whether a key is a newcomer.
    ///
    /// # Replacing
    /// Under a policy that [replaces](crate::RateLimiter::replace) this one, or is replaced by it, a known key is not a newcomer. Units
    /// that it did not start with count as spent. A full key under a policy without a start is unknown.
    ///
    /// # Source
    /// Bucket4j's `Bandwidth.initialTokens`, with `ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(keep)`,
    /// where `keep` is the time in which a full burst refills. Deviation: the time for which a full key is kept counts
    /// from the moment at which it became full, and not from the last request.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy, Quota};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::builder().clock(clock.clone()).build()?;
    /// let api = Policy::token_bucket("api", Quota::per_minute(60).burst(100).starting_with(10)).on(&store)?;
    /// let decision = api.check("ada").cost(12).now().expect("memory answers at once")?;
    /// assert_eq!((decision.is_allowed(), decision.remaining()), (false, 10));
    /// assert_eq!(decision.retry_after(), Some(Duration::from_secs(2)));
    ///
    /// clock.advance(Duration::from_secs(90)); // full by now
    /// assert!(api.check("ada").cost(100).now().expect("memory answers at once")?.is_allowed());
    ///
    /// clock.advance(Duration::from_secs(200)); // full after 100 seconds, and forgotten after 100 more
    /// assert_eq!(api.peek("ada").now().expect("memory answers at once")?.remaining(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn starting_with(mut self, units: u64) -> Self {
        self.start = Some(units);
        self
    }

    /// Counts this quota by an algorithm of its own. Default: the policy's algorithm. As text `by fixed-window`, at the end.
    ///
    /// So one policy can refill in several ways, and a request still spends from all of its quotas or from none:
    ///
    /// ```
    /// use sluicegate_core::algorithm::Refill;
    /// use sluicegate_core::{Algorithm, Policy, Quota};
    ///
    /// // A hundred a minute that come back one by one, and ten thousand a day that come back at midnight UTC.
    /// let api = Policy::gcra("api", "100/min").and("10000/d by token-bucket-aligned").build()?;
    /// let midnight = Algorithm::TokenBucket(Refill::AlignedInterval);
    /// assert_eq!(api, Policy::gcra("api", "100/min").and(Quota::per_day(10_000).counted_by(midnight)).build()?);
    /// assert_eq!(api.quotas()[1].algorithm(), midnight);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    #[must_use]
    pub const fn counted_by(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// Units per period.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The periods of the calendar that the limit is for, if [`in_calendar`](Self::in_calendar) set them.
    pub const fn calendar(&self) -> Option<CalendarPeriod> {
        self.calendar
    }

    /// This quota with other numbers of units in the same period.
    #[must_use]
    pub const fn with_units(self, limit: u64, burst: u64) -> Self {
        Self { limit, burst, ..self }
    }

    /// The units that are carried over, if [`carrying_over`](Self::carrying_over) made this quota.
    fn carries(&self) -> Option<u64> {
        let is_carried = match self.algorithm {
            Some(algorithm) => algorithm == Algorithm::TokenBucket(Refill::AlignedInterval),
            // The policy's own, which has no other one for this.
            None => self.calendar.is_some(),
        };
        let units = self.burst.checked_sub(self.limit).filter(|units| *units > 0);
        units.filter(|_| is_carried && self.start == Some(self.limit))
    }

    /// The span that the limit is for.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Units that may be spent at once from rest.
    ///
    /// The limit, unless [`burst`](Self::burst) set another number. A decision calls it
    /// [capacity](crate::Decision::capacity).
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }

    /// The units of a key that is unknown to the store, if [`starting_with`](Self::starting_with) set them.
    pub const fn start(&self) -> Option<u64> {
        self.start
    }

    /// The algorithm that counts it, if [`counted_by`](Self::counted_by) set one.
    pub const fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm
    }

    /// This quota, counted by this algorithm, or by its policy's.
    pub(crate) const fn with_algorithm(mut self, algorithm: Option<Algorithm>) -> Self {
        self.algorithm = algorithm;
        self
    }
}

/// Anything that a policy accepts as a quota: a [`Quota`], or its text.
///
/// Builders accept it so that callers can write `"5/min"` and get mistakes in it from `build`.
///
/// ```
/// use sluicegate_core::Policy;
/// use sluicegate_core::policy::{IntoQuota, PolicyBuilder};
///
/// /// Takes a quota as the policies themselves do.
/// fn plan(name: &str, quota: impl IntoQuota) -> PolicyBuilder {
///     Policy::gcra(name, quota).refunds()
/// }
///
/// assert!(plan("pro", "1000/h").build().is_ok());
/// let error = plan("pro", "1000").build().unwrap_err().to_string();
/// assert!(error.contains("there is no \"/\" or \"per\""), "{error}");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no quota",
    label = "a quota is expected here",
    note = "write it as text, \"5/min\" or \"10/s burst 20\", or as `Quota::per_minute(5)`"
)]
pub trait IntoQuota: sealed::Sealed {
    /// The quota, or the mistake in its text.
    ///
    /// # Errors
    /// As reading a [`Quota`] from its text.
    fn into_quota(self) -> Result<Quota, ConfigError>;
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else shall implement it")]
    pub trait Sealed {}

    impl Sealed for super::Quota {}
    impl Sealed for &str {}
    impl Sealed for String {}
}

impl IntoQuota for Quota {
    fn into_quota(self) -> Result<Quota, ConfigError> {
        Ok(self)
    }
}

impl IntoQuota for &str {
    fn into_quota(self) -> Result<Quota, ConfigError> {
        self.parse()
    }
}

impl IntoQuota for String {
    fn into_quota(self) -> Result<Quota, ConfigError> {
        self.parse()
    }
}
