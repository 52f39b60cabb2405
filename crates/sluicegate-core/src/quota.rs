//! A limit per period ([`Quota`]), as numbers and as text, and the [`Algorithm`] that counts it.

mod text;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::calendar::CalendarPeriod;
use crate::error::ConfigError;
use crate::text::value_of;

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

/// The moments at which fixed windows begin.
///
/// A window that begins at the epoch is the same for all keys, and for all instances of a service
/// whose clocks agree. A window that begins with a key's first unit differs from key to key, so
/// that keys do not come back all at once.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::algorithm::Anchor;
/// use sluicegate_core::clock::ManualClock;
/// use sluicegate_core::{Algorithm, MemoryStore, Policy};
///
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().clock(clock.clone()).build()?;
/// clock.set(Duration::from_secs(45)); // a quarter before the full minute
/// for (name, anchor, reset_after) in [("full", Anchor::Epoch, 15), ("own", Anchor::FirstHit, 60)] {
///     let limiter = Policy::builder(name, Algorithm::FixedWindow(anchor), "5/min").on(&store)?;
///     let decision = limiter.check("ada").now().expect("memory answers at once")?;
///     assert_eq!(decision.reset_after(), Duration::from_secs(reset_after));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Anchor {
    /// Windows begin on multiples of the period since the epoch of the store's clock, which is the Unix
    /// epoch unless the store was given another clock: the full minute, the full hour, midnight UTC. Windows of seven days begin
    /// on Mondays, as weeks do.
    Epoch,
    /// A key's first unit begins its window. The next window begins with the first unit that comes
    /// after the end of that one.
    FirstHit,
}

/// How a token bucket is refilled.
///
/// The bucket holds `burst` tokens and starts full, or with [fewer](super::Quota::starting_with); a unit of cost takes one token.
///
/// [`Refill::Greedy`] adds tokens continuously and is GCRA: a bucket that lacks `n` tokens is one with a theoretical
/// arrival time `n * period / limit` ahead. [`Refill::Interval`] adds `limit` tokens at the end of each period,
/// counted from the moment a full bucket was first drawn from, [`Refill::AlignedInterval`] at whole multiples of
/// the period since the clock's epoch.
///
/// # Source
/// RFC 2697 section 3 (the committed bucket); the refill modes are Bucket4j's (`refillGreedy`, `refillIntervally`,
/// `refillIntervallyAligned`). Deviation: a bucket that is full again is forgotten, so the interval mode counts anew from
/// the next draw instead of from the bucket's creation.
///
/// # Rounding
/// None; see [GCRA](super::algorithm::Gcra).
///
/// # State
/// [`Refill::Greedy`] has the state of [GCRA](super::algorithm::Gcra): one 64-bit word for round figures, two otherwise.
/// The other modes have two words.
///
/// # Example
/// Four tokens per 8 s: greedy refill gives one back each 2 s, interval refill all four after 8 s.
///
/// ```
/// use sluicegate_core::algorithm::{Refill, Rule, State};
/// use sluicegate_core::{Algorithm, Quota};
///
/// let quota: Quota = "4/8s".parse()?;
/// let after_3s = |refill| {
///     let rule = Rule::new(Algorithm::TokenBucket(refill), quota)?;
///     let empty = rule.spend(State::REST, 0, 0, 4);
///     Ok::<_, sluicegate_core::ConfigError>(rule.remaining(empty, 3_000_000))
/// };
/// assert_eq!(after_3s(Refill::Greedy)?, 1);
/// assert_eq!(after_3s(Refill::Interval)?, 0);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refill {
    /// Continuously, one token each `period / limit`. The default of
    /// [`Policy::token_bucket`](super::Policy::token_bucket).
    Greedy,
    /// `limit` tokens at the end of each period, counted from the first draw on a full bucket.
    Interval,
    /// `limit` tokens on each multiple of the period since the Unix epoch; with a period of seven days, on each Monday.
    AlignedInterval,
}

/// How a leaky bucket treats the units that it holds.
///
/// A leaky bucket is GCRA in the words of queues. It holds `burst` units and leaks `limit` per `period`.
///
/// As a meter ([`Drain::Meter`]) it refuses units that do not fit. As a queue ([`Drain::Queue`]) it holds units that fit until
/// the units before them have leaked out, so that the output is spaced exactly `period / limit`; a full queue refuses.
/// As a mix of the two ([`Drain::QueueAbove`]), the first units pass without delay.
///
/// # Source
/// Turner, "New directions in communications" (1986), and ITU-T I.371 annex A.1 (continuous-state leaky bucket,
/// which equals GCRA). The delays are those of nginx's `ngx_http_limit_req_module`: its `burst=b` is `burst(b + 1)`
/// here, because there the request being served is not counted; `nodelay` is [`Drain::Meter`], `delay=n` is [`Drain::QueueAbove`].
/// Deviations: rates are exact (nginx rounds to thousandths of a request per second), and a cost of `c` proceeds
/// when its first unit may.
///
/// # Rounding
/// None, as under [GCRA](super::algorithm::Gcra).
///
/// # State
/// The state of [GCRA](super::algorithm::Gcra): one 64-bit word for round figures, two otherwise.
///
/// # Example
/// Three units fit, and one leaks each second. The meter lets three pass at once; the queue lets
/// the same three in and spaces them, so that the third proceeds after two seconds.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// let delays = |limiter: &sluicegate_core::RateLimiter| {
///     let delay = || limiter.check("ada").now().expect("memory answers at once").map(|d| d.delay().as_secs_f64().round());
///     Ok::<_, sluicegate_core::StoreError>([delay()?, delay()?, delay()?])
/// };
/// let meter = Policy::leaky_bucket("meter", "1/s burst 3").on(&store)?;
/// assert_eq!(delays(&meter)?, [0.0, 0.0, 0.0]);
/// assert!(!meter.check("ada").now().expect("memory answers at once")?.is_allowed());
///
/// let queue = Policy::leaky_queue("queue", "1/s burst 3").wait_up_to(Duration::from_secs(5)).on(&store)?;
/// assert_eq!(delays(&queue)?, [0.0, 1.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Drain {
    /// Passes units that fit at once and refuses the rest: a meter, nginx's `nodelay`. The default of
    /// [`Policy::leaky_bucket`](super::Policy::leaky_bucket).
    Meter,
    /// Delays units that fit, so that the output is evenly spaced: a queue. The policy has to wait
    /// ([`wait_up_to`](super::policy::PolicyBuilder::wait_up_to)), and can have only one quota,
    /// because there is one spacing.
    Queue,
    /// Passes units at once until this many are in the bucket and delays units above: nginx's `delay=n`.
    QueueAbove(u64),
}

/// How a quota is counted. The README has a table that compares them.
///
/// If in doubt, take [`Gcra`](Self::Gcra): one number per key, no borders that a client could aim at,
/// and an exact wait in each refusal. Take [`SlidingLog`](Self::SlidingLog) if the limit is a
/// security promise, such as failed logins; [`SlidingCounter`](Self::SlidingCounter) or
/// [`FixedWindow`](Self::FixedWindow) where a contract speaks of windows; a [queue](Drain::Queue)
/// if traffic should be smoothed, not refused.
///
/// # At most
/// For a limit of L per period P and a burst of B (L unless it is set), this much passes in the
/// worst half-open span of one period:
///
/// | algorithm | in the worst span of P | words of state | after a burst from rest |
/// |---|---|---|---|
/// | [`Gcra`](Self::Gcra), [`Refill::Greedy`], [`Drain::Meter`] | B + L - 1 | 1 or 2 | one more each P / L |
/// | [`Drain::Queue`] | L depart, P / L apart | 1 or 2 | one more each P / L |
/// | [`Refill::Interval`], [`Refill::AlignedInterval`] | B + L | 2 | L at once at the next border |
/// | [`FixedWindow`](Self::FixedWindow) | 2 L, across a border | 2 | L at once at the next border |
/// | [`SlidingCounter`](Self::SlidingCounter) | 2 L, see there | 2 | gradually, once the next window begins |
/// | [`SlidingLog`](Self::SlidingLog) | L | one entry per admission | L at once, one P later |
/// | [`SlidingLogIn(n)`](Self::SlidingLogIn) | L | at most n + 1 entries | L at once, up to P / n later than that |
///
/// A bucket limits the average: a limit of "5/min" under GCRA lets five pass at once and nine in
/// the worst minute. Give it a smaller burst (`"5/min burst 1"`) if that is too many, or use a
/// log.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::algorithm::Anchor;
/// use sluicegate_core::clock::ManualClock;
/// use sluicegate_core::{Algorithm, MemoryStore, Policy};
///
/// /// The units of "10/10s" that pass within ten seconds, for a client that starts just before a
/// /// border of windows and then takes every unit it can get.
/// fn in_ten_seconds(algorithm: Algorithm) -> Result<u64, Box<dyn std::error::Error>> {
///     let clock = ManualClock::new();
///     let store = MemoryStore::builder().clock(clock.clone()).build()?;
///     let limiter = Policy::builder("api", algorithm, "10/10s").on(&store)?;
///     clock.set(Duration::from_micros(9_999_999));
///     let mut passed = 0;
///     for _hundredth_of_a_second in 0..1_000 {
///         while limiter.check("ada").now().expect("memory answers at once")?.is_allowed() {
///             passed += 1;
///         }
///         clock.advance(Duration::from_millis(10));
///     }
///     Ok(passed)
/// }
///
/// assert_eq!(in_ten_seconds(Algorithm::SlidingLog)?, 10);
/// assert_eq!(in_ten_seconds(Algorithm::Gcra)?, 19);
/// assert_eq!(in_ten_seconds(Algorithm::FixedWindow(Anchor::Epoch))?, 20);
/// assert_eq!(in_ten_seconds(Algorithm::SlidingCounter)?, 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # As text
/// Prints and parses as `fixed-window`, `fixed-window-from-first-hit`, `sliding-log`,
/// `sliding-log-in-N`, `sliding-counter`, `token-bucket`, `token-bucket-interval`, `token-bucket-aligned`,
/// `leaky-bucket`, `leaky-bucket-queue`, `leaky-bucket-queue-above-N` and `gcra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count per window: cheapest to explain; at a border up to twice the limit passes.
    ///
    /// All keys of an [aligned](Anchor::Epoch) window come back at the same instant, and so do the
    /// refused clients. If that is a problem, let windows begin with [a key's first
    /// unit](Anchor::FirstHit), or use GCRA.
    FixedWindow(Anchor),
    /// The time of every admission: exact, and the only algorithm with memory that grows with the limit,
    /// so the limit is at most [a million](crate::algorithm::SlidingLog::MAX_LIMIT).
    ///
    /// Choose it for logins, password resets and payments: no more than the limit passes in
    /// any span of one period, wherever the span begins.
    SlidingLog,
    /// A [`SlidingLog`](Self::SlidingLog) with a resolution: the units admitted within one of this many parts of the period are
    /// one entry, as old as the newest of them. Begun by [`Policy::sliding_log`](super::Policy::sliding_log) with
    /// [`resolution`](super::policy::PolicyBuilder::resolution).
    ///
    /// It never passes more than the limit in any span of one period, and room comes back at most a part of the period late.
    /// Its memory is bounded by the parts, whatever the limit.
    SlidingLogIn(u32),
    /// Two counts, the older weighted by its overlap: two words at any limit.
    ///
    /// It is exact for evenly spread traffic. Traffic that takes every unit it can get passes up to
    /// twice the limit in some span of one period: a full window's worth at the end of one window,
    /// and another as the first one fades. Use the log if that is too much.
    SlidingCounter,
    /// A bucket of tokens that starts full, or with [fewer](super::Quota::starting_with): an average rate, and a burst on top of it.
    TokenBucket(Refill),
    /// A bucket that leaks at the quota's rate: a meter that refuses, or a queue that delays.
    LeakyBucket(Drain),
    /// One timestamp per key; decides exactly as the greedy token bucket.
    Gcra,
}

impl Algorithm {
    /// Every algorithm with every setting; for a setting that is a number, one example.
    pub const ALL: [Self; NAMED.len() + 2] = [
        Self::FixedWindow(Anchor::Epoch),
        Self::FixedWindow(Anchor::FirstHit),
        Self::SlidingLog,
        Self::SlidingLogIn(20),
        Self::SlidingCounter,
        Self::TokenBucket(Refill::Greedy),
        Self::TokenBucket(Refill::Interval),
        Self::TokenBucket(Refill::AlignedInterval),
        Self::LeakyBucket(Drain::Meter),
        Self::LeakyBucket(Drain::Queue),
        Self::LeakyBucket(Drain::QueueAbove(2)),
        Self::Gcra,
    ];

    /// Whether an unknown key can [start](super::Quota::starting_with) with less than a burst. Windows, counters and logs
    /// cannot: they start without a count. A queue cannot either: if it did not start empty, it would delay the first request.
    pub fn can_start_short(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket(_) | Self::LeakyBucket(Drain::Meter))
    }

    /// Whether this algorithm delays admitted requests to space its output.
    pub fn is_queue(self) -> bool {
        matches!(self, Self::LeakyBucket(Drain::Queue | Drain::QueueAbove(_)))
    }

    /// Whether this algorithm has borders that are the same for all keys.
    pub(crate) fn is_aligned(self) -> bool {
        matches!(self, Self::FixedWindow(Anchor::Epoch) | Self::TokenBucket(Refill::AlignedInterval))
    }

    /// Whether this algorithm counts in windows, which have a limit and no burst.
    pub(crate) fn is_window(self) -> bool {
        matches!(self, Self::FixedWindow(_) | Self::SlidingLog | Self::SlidingLogIn(_) | Self::SlidingCounter)
    }
}

/// All algorithms whose names have no number in them.
const NAMED: &[(&str, Algorithm)] = &[
    ("fixed-window", Algorithm::FixedWindow(Anchor::Epoch)),
    ("fixed-window-from-first-hit", Algorithm::FixedWindow(Anchor::FirstHit)),
    ("sliding-log", Algorithm::SlidingLog),
    ("sliding-counter", Algorithm::SlidingCounter),
    ("token-bucket", Algorithm::TokenBucket(Refill::Greedy)),
    ("token-bucket-interval", Algorithm::TokenBucket(Refill::Interval)),
    ("token-bucket-aligned", Algorithm::TokenBucket(Refill::AlignedInterval)),
    ("leaky-bucket", Algorithm::LeakyBucket(Drain::Meter)),
    ("leaky-bucket-queue", Algorithm::LeakyBucket(Drain::Queue)),
    ("gcra", Algorithm::Gcra),
];

const QUEUE_ABOVE: &str = "leaky-bucket-queue-above-";
const LOG_IN: &str = "sliding-log-in-";

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeakyBucket(Drain::QueueAbove(units)) => return write!(f, "{QUEUE_ABOVE}{units}"),
            Self::SlidingLogIn(parts) => return write!(f, "{LOG_IN}{parts}"),
            _ => {}
        }
        let name = NAMED.iter().find(|(_, algorithm)| algorithm == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Algorithm {
    type Err = ConfigError;

    /// Reads the name that `Display` prints.
    ///
    /// # Errors
    /// [`Unreadable`](super::error::ConfigErrorKind::Unreadable) for any other text; the message lists the names.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Some(units) = text.strip_prefix(QUEUE_ABOVE).and_then(|units| units.parse().ok()) {
            return Ok(Self::LeakyBucket(Drain::QueueAbove(units)));
        }
        if let Some(parts) = text.strip_prefix(LOG_IN).and_then(|parts| parts.parse().ok()) {
            return Ok(Self::SlidingLogIn(parts));
        }
        let more = format!(", {LOG_IN}N, or {QUEUE_ABOVE}N");
        value_of(text, NAMED, "by which algorithm the quota is counted", &more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_prints_as_it_reads() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("leaky".parse::<Algorithm>().unwrap_err().to_string().contains("leaky-bucket-queue"));
    }
}
