//! Events around decisions and inside of stores: [`Event`], and the [`Listener`] that receives
//! them.
//!
//! Decisions are not events: a wrapper that counts them sees them pass. Events are everything else, so
//! that metrics and logs miss nothing and no layer needs a metrics library.
//!
//! Events tell of an [`Alarm`] about unusual requests, too, and of requests by their [`Class`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;

use super::Inherit;
use crate::decision::Outcome;
use crate::error::{ConfigError, ConfigErrorKind, StoreError};
use crate::key::KeyRef;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::text::listed;

/// An occurrence that deserves a count or a log line but is not a decision.
///
/// Events go two ways. [`Notice::Event`](super::Notice::Event) carries inward the events that never reach
/// [`Store::decide`](crate::Store::decide): a layer reports them once, to the store of its first limit. A [`Listener`] is told of
/// events that arise inside of a store, such as a breaker that opens.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request was let through or refused without asking a store.
    Undecided(Subject<'a>, Undecided),
    /// Limits have decided on a request of this route; reported by layers that count routes.
    Routed {
        /// The pattern that the request has matched, such as `/users/{id}`; none if it has matched none.
        route: Option<&'a str>,
        /// The outcome by all policies together.
        outcome: Outcome,
        /// The time that the decision took, including the look-up of keys and tiers, without the wait for a turn.
        took: Duration,
    },
    /// A request that waited for its turn has left.
    TurnGivenUp(Subject<'a>),
    /// A server has asked that calls to it pause for this long.
    Paused(Subject<'a>, Duration),
    /// A key is suspended under a policy from now on, by its refusals or by hand.
    Suspended {
        /// The policy, and the key.
        subject: Subject<'a>,
        /// The length of the suspension from now. Zero ends a suspension.
        lasts: Duration,
        /// Whether it was done by hand.
        by_hand: bool,
        /// The operator, if [named](crate::limiter::Suspensions::by).
        by: Option<&'a str>,
    },
    /// A policy has replaced an older one.
    PolicyReplaced {
        /// The policy that was in force before.
        old: &'a Arc<Policy>,
        /// The policy that is in force now.
        new: &'a Arc<Policy>,
        /// How the keys of the old one start under the new one.
        inherit: Inherit,
        /// The operator who has put or withdrawn an override; `None` if code has replaced the policy, or an override has expired.
        by: Option<&'a str>,
    },
    /// A key of a policy has other quotas from now on: an operator has given them for a time, or they have ended.
    QuotasGiven {
        /// The policy, and the key; without one, all keys that are [new](crate::policy::OverrideBuilder::new_keys).
        subject: Subject<'a>,
        /// The quotas that were given.
        quotas: &'a [Quota],
        /// The time for which they are given from now. Zero ends it.
        lasts: Duration,
        /// The operator who has given or withdrawn them; `None` if they have expired.
        by: Option<&'a str>,
    },
    /// The value that instances share through this store was read; see [`Shared`](super::Shared).
    Shared(&'a [u8]),
    /// A request was allowed by a policy. Only an observed store reports decisions, and only those by enforced
    /// policies.
    Consumed {
        /// The policy, and the key.
        subject: Subject<'a>,
        /// The units that it has spent.
        units: u64,
    },
    /// A request was allowed by a policy, and waits until its turn comes.
    Delayed {
        /// The policy, and the key.
        subject: Subject<'a>,
        /// The units that it has spent. If it leaves before its turn, they are [refunded](Self::Refunded).
        units: u64,
        /// The wait for the turn.
        delay: Duration,
    },
    /// Units were charged after the fact: a response has cost more than was reserved, or code has charged.
    Charged {
        /// The policy, and the key.
        subject: Subject<'a>,
        /// The units, whether they fit, are a debt, or exceed the highest debt of the policy.
        units: u64,
    },
    /// Units were given back: a response has cost less than was reserved, code has refunded, or a turn was given up.
    Refunded {
        /// The policy, and the key.
        subject: Subject<'a>,
        /// The units. The bucket got back those that still counted.
        units: u64,
    },
    /// A request was refused by a policy.
    Rejected {
        /// The policy, and the key.
        subject: Subject<'a>,
        /// The wait after which it could pass, if a wait helps.
        retry_after: Option<Duration>,
        /// Whether it was refused because the key is suspended.
        is_suspended: bool,
    },
    /// A key has used a part of a budget, which is a [quota of a calendar](crate::Quota::in_calendar), for the first time in the period.
    /// Only an observed store reports it, for enforced policies: see `Observed::events`.
    BudgetUsed {
        /// The policy, and the key.
        subject: Subject<'a>,
        /// The place of the quota in its policy.
        quota: usize,
        /// The part: 50, 80 or 100.
        percent: u8,
        /// The used units of the limit, including reserved ones.
        used: u64,
        /// The units of each period: the key's own limit, if it has brought one.
        limit: u64,
        /// The end of the period.
        until: SystemTime,
    },
    /// Quotas that a key has brought were refused, because this policy has no room for more different quotas.
    QuotasRefused(Subject<'a>),
    /// A header of a trusted proxy did not identify a client.
    ForwardedFault(ForwardedFault),
    /// A request is under way, and counts towards a limit in flight, as those of the crate `sluicegate-in-flight`.
    PermitTaken(Subject<'a>),
    /// A request was refused, because a limit in flight is reached.
    PermitRefused(Subject<'a>),
    /// A shared permit no longer counts although its holder still has it: see `Permit::is_lost`.
    PermitLost(Subject<'a>),
    /// A request was refused by a limit that adapts (`InFlight::adaptive`), because the service is overloaded.
    Shed {
        /// The limit, and the key.
        subject: Subject<'a>,
        /// The importance of the request.
        class: Class,
        /// Whether it was refused; `false` if it would have been refused by an enforced limit.
        is_enforced: bool,
    },
    /// A limit that adapts (`InFlight::adaptive`) has changed its number after responses of the service.
    LimitMoved {
        /// The limit.
        subject: Subject<'a>,
        /// The number of requests at once before.
        from: u64,
        /// The number of requests at once now.
        to: u64,
    },
    /// The requests of a policy are unusual, or usual again. Only an observed store reports it.
    Alarm(&'a Alarm),
    /// A store that answered before gave no answer, and no store around it decides in its place.
    StoreFails {
        /// The failure.
        error: &'a StoreError,
    },
    /// A store that gave no answer before answers again.
    StoreAnswers,
    /// A part of a store is no longer asked, because it has failed too often. A trial that fails meanwhile is no such event.
    BreakerOpened {
        /// The bit of [`Parts`](super::Parts).
        part: usize,
        /// The time for which it is not asked.
        pause: Duration,
        /// The last failure.
        error: &'a StoreError,
    },
    /// A part of a store is asked again.
    BreakerClosed {
        /// The bit of [`Parts`](super::Parts).
        part: usize,
    },
    /// The first part of a store is no longer asked; from now on each policy's `OnOutage` decides.
    FallbackBegan,
    /// All parts of a store are asked again.
    FallbackEnded {
        /// The time for which at least one part was not asked.
        lasted: Duration,
    },
    /// Units spent without the store were charged to it.
    Settled {
        /// The number of debts that were charged: one for each key and policy.
        charged: usize,
        /// The number of keys that still owe units.
        left: usize,
    },
}

/// Why no store has decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Undecided {
    /// The request is exempt from all limits.
    Exempt,
    /// The request is refused whatever the limits say.
    Blocked,
    /// The request has no key.
    MissingKey,
    /// The request's tier is not known.
    UnknownTier,
    /// The queue of requests that wait is full.
    QueueFull,
    /// The key or the tier of the request was looked up, and did not come in time.
    LookupTimeout,
    /// The server is set up wrongly: it passes no peer address on, an extractor fails, or the limits cannot be decided. The request gets a 5xx,
    /// and the log has the cause.
    Mistake,
}

listed!(Undecided, "All reasons, in their order.", "The word for the reason, in metrics and logs.":
    Exempt => "exempt", Blocked => "blocked", MissingKey => "missing_key", UnknownTier => "unknown_tier",
    QueueFull => "queue_full", LookupTimeout => "lookup_timeout", Mistake => "mistake");

/// Why a forwarded header of a trusted proxy did not identify a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardedFault {
    /// The header was missing, or had fewer elements than there are proxies.
    Missing,
    /// An element was not an address.
    Unreadable,
    /// The header has more elements than are read.
    TooLong,
    /// A header with a single value occurred more than once.
    Repeated,
}

listed!(ForwardedFault, "All faults, in their order.", "The word for the fault, in metrics and logs.":
    Missing => "missing", Unreadable => "unreadable", TooLong => "too_long", Repeated => "repeated");

/// The subject of an [`Event`], as far as known.
///
/// ```
/// use sluicegate_core::Key;
/// use sluicegate_core::store::{Event, Subject, Undecided};
///
/// let ada = Key::from("ada");
/// let event = Event::Undecided(Subject::of("login").with_key(ada.as_ref()), Undecided::QueueFull);
/// assert!(matches!(event, Event::Undecided(Subject { policy: Some("login"), .. }, Undecided::QueueFull)));
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// The name of the policy.
    pub policy: Option<&'a str>,
    /// The key. It may be a secret: only a digest of it may be shown or kept, unless its kind is known.
    pub key: Option<KeyRef<'a>>,
}

impl<'a> Subject<'a> {
    /// A subject with the policy of this name.
    pub fn of(policy: &'a str) -> Self {
        Self { policy: Some(policy), key: None }
    }

    /// This subject with a key.
    #[must_use]
    pub fn with_key(self, key: KeyRef<'a>) -> Self {
        Self { key: Some(key), ..self }
    }
}

/// Receives the events that arise inside of a store; see [`Notice::Listener`](super::Notice::Listener).
///
/// # Contract
/// It is called outside of all locks, by the thread in which the event arises, often in the middle of a request. It must
/// not block, and should count rather than queue events.
///
/// A closure is a listener:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use sluicegate_core::store::{Event, Listeners};
///
/// let opened = Arc::new(AtomicU64::new(0));
/// let count = Arc::clone(&opened);
/// let listeners = Listeners::default();
/// listeners.add(Arc::new(move |event: &Event<'_>| {
///     if matches!(event, Event::FallbackBegan) {
///         count.fetch_add(1, Ordering::Relaxed);
///     }
/// }));
/// listeners.tell(&Event::FallbackBegan);
/// assert_eq!(opened.load(Ordering::Relaxed), 1);
/// ```
pub trait Listener: Send + Sync + 'static {
    /// Receives an event.
    fn event(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Listener for F {
    fn event(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The listeners of a store, for authors of stores in which events arise.
///
/// Listeners are added when a program starts and called millions of times, so a call takes no lock.
/// A listener cannot be removed; it lives as long as the store.
#[derive(Default)]
pub struct Listeners {
    all: ArcSwapOption<Vec<Arc<dyn Listener>>>,
    /// Separate from the list, because every decision reads it.
    is_any: AtomicBool,
}

impl Listeners {
    /// Adds a listener.
    pub fn add(&self, listener: Arc<dyn Listener>) {
        self.all.rcu(|all| {
            let mut all = all.as_deref().cloned().unwrap_or_default();
            all.push(Arc::clone(&listener));
            Some(Arc::new(all))
        });
        // Relaxed, here and below: a thread may miss a listener that is added at this moment, as it may without the flag.
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Whether there are no listeners, so that no event has to be made.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.is_any.load(Ordering::Relaxed)
    }

    /// Calls all listeners, in the order in which they were added. Call it outside of all locks.
    pub fn tell(&self, event: &Event<'_>) {
        for listener in self.all.load().iter().flat_map(|all| all.iter()) {
            listener.event(event);
        }
    }
}

crate::debug_as!(Listeners, listeners => listeners.all.load().as_ref().map_or(0, |all| all.len()));

/// Unusual requests of a policy, as a store that [observes](super::Event::Alarm) them has detected.
///
/// Its text states the unusual number and the usual range:
///
/// ```
/// use sluicegate_core::store::{Alarm, AlarmCause};
///
/// let mut alarm = Alarm::of("login", AlarmCause::NewKeys);
/// (alarm.a_minute, alarm.usual, alarm.share) = (512, (14, 31), 0.94);
/// assert_eq!(alarm.to_string(), "new keys of login a minute: 512, usually 14 to 31; they make 94 % of its requests");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Alarm {
    /// The name of the policy.
    pub policy: String,
    /// The number that is unusual.
    pub cause: AlarmCause,
    /// When it was noticed, in microseconds by the clock of the store.
    pub since_us: u64,
    /// The unusual number, for one minute.
    pub a_minute: u64,
    /// The standard error of [`a_minute`](Self::a_minute), if it is an estimate.
    pub error: u64,
    /// The lowest and the highest usual number for one minute.
    pub usual: (u64, u64),
    /// The share of the policy's requests, 0 to 1.
    pub share: f64,
    /// The networks with the largest shares: /24 and /48, each with its share of the policy's requests, the largest first. Only for
    /// keys that are addresses.
    pub networks: Vec<(String, f64)>,
    /// The reason why such requests are expected, if they are; then there is no warning.
    pub expected: Option<String>,
    /// Whether it is over.
    pub is_over: bool,
}

/// The number that is unusual about the requests of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AlarmCause {
    /// More requests.
    Requests,
    /// More refusals.
    Refusals,
    /// More keys that were never seen before.
    NewKeys,
    /// More requests of the busiest one in a hundred keys.
    BusiestKeys,
    /// More requests of the busiest network.
    BusiestNetwork,
}

listed!(AlarmCause, "All causes, in their order.", "The word for the cause, in metrics and logs.":
    Requests => "requests", Refusals => "refusals", NewKeys => "new_keys", BusiestKeys => "busiest_keys",
    BusiestNetwork => "busiest_network");

impl AlarmCause {
    fn counted(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Refusals => "refusals",
            Self::NewKeys => "new keys",
            Self::BusiestKeys => "requests of the busiest 1 % of keys",
            Self::BusiestNetwork => "requests of the busiest network",
        }
    }
}

impl Alarm {
    /// An alarm about a policy, without numbers.
    pub fn of(policy: impl Into<String>, cause: AlarmCause) -> Self {
        Self {
            policy: policy.into(),
            cause,
            since_us: 0,
            a_minute: 0,
            error: 0,
            usual: (0, 0),
            share: 0.0,
            networks: Vec::new(),
            expected: None,
            is_over: false,
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, cause, a_minute, error, usual: (least, most), .. } = self;
        if let Some(why) = &self.expected {
            write!(f, "expected, {why}: ")?;
        }
        if self.is_over {
            f.write_str("no longer unusual: ")?;
        }
        write!(f, "{} of {policy} a minute: {a_minute}", cause.counted())?;
        if *error > 0 {
            write!(f, " (± {error})")?;
        }
        write!(f, ", usually {least} to {most}")?;
        if self.is_over {
            return Ok(());
        }
        if *cause != AlarmCause::Requests {
            write!(f, "; they make {:.0} % of its requests", self.share * 100.0)?;
        }
        for (place, (network, share)) in self.networks.iter().enumerate() {
            let separator = if place == 0 { "; from " } else { ", " };
            write!(f, "{separator}{network} ({:.0} %)", share * 100.0)?;
        }
        Ok(())
    }
}

/// The importance of a request, when not all can be served.
///
/// The classes of Google's "Site Reliability Engineering", chapter 21, "Handling Overload". While requests compete for a
/// limit that adapts (`InFlight::adaptive` of the crate `sluicegate-in-flight`), requests of lower classes are refused first.
///
/// # As text
/// Prints and parses as `critical-plus`, `critical`, `sheddable-plus` and `sheddable`.
///
/// ```
/// use sluicegate_core::store::Class;
///
/// assert_eq!("sheddable-plus".parse::<Class>()?, Class::SheddablePlus);
/// assert_eq!(Class::default().to_string(), "critical");
/// assert!(Class::CriticalPlus < Class::Sheddable, "the most important one is the first");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A failure of the request would be serious, and visible to users.
    CriticalPlus,
    /// A user waits for the request. Requests whose class is not known are of this one.
    #[default]
    Critical,
    /// Some unavailability is expected: batch jobs that try again after minutes or hours.
    SheddablePlus,
    /// Partial unavailability, and now and then a full one, is expected.
    Sheddable,
}

listed!(Class, "All classes, the most important one first.", "The name of the class, as it is written.":
    CriticalPlus => "critical-plus", Critical => "critical", SheddablePlus => "sheddable-plus",
    Sheddable => "sheddable");

impl Class {
    /// Its place in [`ALL`](Self::ALL).
    pub fn place(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|class| class.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            let problem = format!("there is no class {text:?}: use one of {words}");
            ConfigError::new(ConfigErrorKind::Policy, problem)
        })
    }
}
