//! The settings that some algorithms take: [`Anchor`], [`Refill`] and [`Drain`].

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
/// The bucket holds `burst` tokens and starts full, or with [fewer](crate::Quota::starting_with); a unit of cost takes one token.
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
/// None; see [GCRA](crate::algorithm::Gcra).
///
/// # State
/// [`Refill::Greedy`] has the state of [GCRA](crate::algorithm::Gcra): one 64-bit word for round figures, two otherwise.
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
    /// [`Policy::token_bucket`](crate::Policy::token_bucket).
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
/// None, as under [GCRA](crate::algorithm::Gcra).
///
/// # State
/// The state of [GCRA](crate::algorithm::Gcra): one 64-bit word for round figures, two otherwise.
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
    /// [`Policy::leaky_bucket`](crate::Policy::leaky_bucket).
    Meter,
    /// Delays units that fit, so that the output is evenly spaced: a queue. The policy has to wait
    /// ([`wait_up_to`](crate::policy::PolicyBuilder::wait_up_to)), and can have only one quota,
    /// because there is one spacing.
    Queue,
    /// Passes units at once until this many are in the bucket and delays units above: nginx's `delay=n`.
    QueueAbove(u64),
}
