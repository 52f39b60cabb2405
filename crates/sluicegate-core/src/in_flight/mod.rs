//! Limits on how much is under way at once, per key: [`InFlight`].
//!
//! For work that takes long: a limit on how often work begins says nothing about how much of it is under
//! way. Where the work is over in milliseconds, a rate is the better limit.
//!
//! | | a rate ([`Policy`](crate::Policy)) | in flight |
//! |---|---|---|
//! | counts | beginnings per time | work that has begun and not ended |
//! | a slow service | lets the work pile up | holds new work back |
//! | is given back | no, it drains | yes, when the [`Permit`] is dropped |
//! | over several instances | shared by Redis | of this process: N instances have N times as many |
//!
//! The two go well together: a rate against abuse, and a number at once against overload.
//!
//! A number for each key protects from clients. Where the service itself is the limit, [`InFlight::adaptive`] finds the number of
//! requests that it can bear, for all keys together.
//!
//! # When not to use it
//! For a bound over all instances of a service, for one that has to survive a crash of the process,
//! and to limit CPU work that never yields.

pub mod adaptive;
mod busy;
mod class;
mod line;
mod permit;
mod place;
mod request;
mod service;
mod settings;
mod status;
mod table;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

pub use self::busy::{NoPermit, NoPermitKind};
pub use self::class::Class;
use self::line::{Lost, Seat};
pub use self::permit::{Acquire, Permit};
use self::place::Place;
pub use self::request::PermitRequest;
use self::service::{Asked, Begun, Service};
pub use self::settings::AdaptiveBuilder;
pub use self::status::{AdaptiveMoment, AdaptiveStatus};
use self::table::{Entered, Table};
use crate::clock::Clock;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::{AsKey, Key, KeyRef};
use crate::policy::check_name;
use crate::store::{Event, Listener, Listeners, Subject};

/// Limits how much a key has under way at once: uploads of a tenant, connections of an
/// address.
///
/// A rate limits how often something begins; this limits how much of it is under way, for work that
/// takes long. Each [`Permit`] is one of its key's permits, held until it is dropped. It counts within
/// one process; clones are handles to the same permits.
///
/// ```
/// use sluicegate_core::in_flight::InFlight;
///
/// let uploads = InFlight::new("uploads", 2)?;
/// let first = uploads.try_acquire("ada")?;
/// let second = uploads.try_acquire("ada")?;
/// assert!(uploads.try_acquire("ada").is_err() && uploads.try_acquire("bob").is_ok());
/// drop(first);
/// assert!(uploads.try_acquire("ada").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Fairness
/// First come, first served, per key: no request overtakes those that wait, not even by
/// [`try_acquire`](Self::try_acquire). Keys do not wait for each other.
///
/// # Memory
/// Only keys with permits out take room, about 150 bytes each, and waiting takes room only within
/// the bounds of [`InFlightBuilder::queue`].
#[derive(Clone)]
pub struct InFlight(Arc<Inner>);

struct Inner {
    name: String,
    permits: Permits,
    listeners: Listeners,
}

/// The two kinds of limits.
enum Permits {
    /// A fixed number, equal for each key.
    Each { number: AtomicU64, table: Table },
    /// The number that a service can bear, for all keys together.
    Service(Box<Service>),
}

impl InFlight {
    /// Gives each key this many `permits`. The name appears in headers and logs.
    ///
    /// # Errors
    /// As [`InFlightBuilder::build`].
    pub fn new(name: impl Into<String>, permits: u64) -> Result<Self, ConfigError> {
        Self::builder(name, permits).build()
    }

    /// Begins with other settings than those of [`new`](Self::new).
    pub fn builder(name: impl Into<String>, permits: u64) -> InFlightBuilder {
        InFlightBuilder { name: name.into(), permits, queue: 100, queue_in_all: 1_000 }
    }

    /// Gives out as many permits as a service can bear, for all keys together: the number follows how long requests take, and how many of
    /// them fail.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate_core::in_flight::{Class, InFlight};
    ///
    /// let api = InFlight::adaptive("api").at_least(2).at_most(500).first(2).build()?;
    /// let one = api.request("ada").try_acquire()?;
    /// let two = api.request("bob").class(Class::Sheddable).try_acquire()?;
    /// // The service is busy: two wait for up to 100 ms, and the one that matters more goes first.
    /// let third = api.request("bob").class(Class::Sheddable).acquire();
    /// let fourth = api.request("ada").class(Class::CriticalPlus).acquire();
    /// one.answered(false); // a sample; with `true` a fault
    /// drop(one);
    /// let fourth = fourth.await?;
    /// # drop((two, third, fourth));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Where to take care
    /// - Each permit has to report that its request is [answered](Permit::answered); without that there are no samples, and the number stays.
    /// - The key names the tenant of a request. It makes a difference only if the permits are [shared by keys](AdaptiveBuilder::fair).
    /// - The number is for this process only: other instances have their own.
    pub fn adaptive(name: impl Into<String>) -> AdaptiveBuilder {
        AdaptiveBuilder::new(name.into())
    }

    fn adapting(builder: AdaptiveBuilder, clock: Arc<dyn Clock>) -> Self {
        let permits = Permits::Service(Box::new(Service::new(&builder, clock)));
        Self(Arc::new(Inner { name: builder.name, permits, listeners: Listeners::default() }))
    }

    /// Begins a request for a permit, with more settings than its key.
    pub fn request(&self, key: impl AsKey) -> PermitRequest {
        key.with_key(|key| PermitRequest::new(self.clone(), key.to_key()))
    }

    /// Takes a permit now, if one is free and no request waits for it.
    ///
    /// # Errors
    /// [`NoPermitKind::Permits`] when all permits of the key are out.
    pub fn try_acquire(&self, key: impl AsKey) -> Result<Permit, NoPermit> {
        self.request(key).try_acquire()
    }

    /// Takes a permit as soon as there is one: first come, first served, in the order of the calls.
    ///
    /// The caller bounds the wait, such as by `tokio::time::timeout`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use sluicegate_core::in_flight::InFlight;
    ///
    /// let reports = InFlight::new("reports", 1)?;
    /// let first = reports.try_acquire("ada")?;
    /// let second = tokio::time::timeout(Duration::from_secs(1), reports.acquire("ada")).await;
    /// assert!(second.is_err());
    /// drop(first);
    /// assert!(reports.acquire("ada").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future gives [`NoPermitKind::Queue`] at once when the queue is full.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue; a permit that it was given goes to the next.
    pub fn acquire(&self, key: impl AsKey) -> Acquire {
        self.request(key).acquire()
    }

    /// The name that headers show.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether both count the same requests: one is a clone of the other.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The number of permits that each key has; where the limit adapts, the number that all keys have together now.
    pub fn permits(&self) -> u64 {
        match &self.0.permits {
            Permits::Each { number, .. } => number.load(Ordering::Relaxed),
            Permits::Service(service) => service.limit(),
        }
    }

    /// Gives each key another number of permits, for all clones. If there are more, waiting requests get theirs at once; if
    /// there are fewer, permits that are out stay out until they are dropped.
    ///
    /// # Errors
    /// As [`InFlightBuilder::build`]; the old number then stays.
    ///
    /// ```
    /// use sluicegate_core::in_flight::InFlight;
    ///
    /// let jobs = InFlight::new("jobs", 3)?;
    /// let held: Vec<_> = (0..3).map(|_| jobs.try_acquire("ada")).collect::<Result<_, _>>()?;
    /// jobs.set_permits(1)?;
    /// assert_eq!((jobs.in_use("ada"), jobs.remaining("ada")), (3, 0)); // nothing is taken away
    /// drop(held);
    /// assert_eq!(jobs.remaining("ada"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_permits(&self, permits: u64) -> Result<(), ConfigError> {
        check_permits(&self.0.name, permits)?;
        let Permits::Each { number, table } = &self.0.permits else {
            let problem = format!("{:?} adapts its number: use `set_adaptive`", self.0.name);
            return Err(ConfigError::new(ConfigErrorKind::Policy, problem));
        };
        // Relaxed: decisions load it under the lock of a part, and `pass_on` visits each part after this.
        number.store(permits, Ordering::Relaxed);
        table.pass_on(number);
        Ok(())
    }

    /// Gives a limit that adapts other settings, for all clones. It keeps what it has learnt, unless the algorithm is another.
    ///
    /// # Errors
    /// As [`AdaptiveBuilder::build`]; for another name, for settings that begin or cease to share by keys, and if the number is fixed. The
    /// old settings then stay.
    pub fn set_adaptive(&self, settings: &AdaptiveBuilder) -> Result<(), ConfigError> {
        match &self.0.permits {
            Permits::Service(service) => service.set(&self.0.name, settings),
            Permits::Each { .. } => {
                let problem = format!("{:?} has a fixed number: use `set_permits`", self.0.name);
                Err(ConfigError::new(ConfigErrorKind::Policy, problem))
            }
        }
    }

    /// The state of a limit that adapts; `None` if the number is fixed.
    pub fn status(&self) -> Option<AdaptiveStatus> {
        match &self.0.permits {
            Permits::Service(service) => Some(service.status()),
            Permits::Each { .. } => None,
        }
    }

    /// Estimates the time in which all requests that are under way or wait now will be done, from how fast permits came back in the last
    /// second: a new request is worth a try after that. At most a minute; `None` if the number is fixed.
    pub fn drains_in(&self) -> Option<Duration> {
        match &self.0.permits {
            Permits::Service(service) => Some(service.drain()),
            Permits::Each { .. } => None,
        }
    }

    /// Whether the number follows the load that a service can bear.
    pub fn is_adaptive(&self) -> bool {
        matches!(self.0.permits, Permits::Service(_))
    }

    /// The number of the key's permits that are out; of all keys, if keys make no difference.
    pub fn in_use(&self, key: impl AsKey) -> u64 {
        match &self.0.permits {
            Permits::Each { table, .. } => key.with_key(|key| table.in_use(key)),
            Permits::Service(service) => key.with_key(|key| service.in_use_of(&key.to_key())),
        }
    }

    /// The number of permits that are left, for the key, or for all keys if the limit adapts.
    pub fn remaining(&self, key: impl AsKey) -> u64 {
        match &self.0.permits {
            Permits::Each { .. } => self.permits().saturating_sub(self.in_use(key)),
            Permits::Service(service) => service.limit().saturating_sub(service.in_use()),
        }
    }

    /// The number of permits that are out, for all keys together.
    pub fn in_use_in_all(&self) -> u64 {
        match &self.0.permits {
            Permits::Each { table, .. } => table.in_use_in_all(),
            Permits::Service(service) => service.in_use(),
        }
    }

    /// Adds a listener, which hears from now on of each permit that is taken and of each request that is refused:
    /// [`Event::PermitTaken`], [`Event::PermitRefused`], and [`Event::Shed`] where the limit adapts.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.0.listeners.add(listener);
    }

    /// The number of keys that have permits out; where keys make no difference, 1 if any is out.
    ///
    /// Locks each of the 64 parts once: for a gauge, not for each request.
    pub fn keys(&self) -> usize {
        match &self.0.permits {
            Permits::Each { table, .. } => table.keys(),
            Permits::Service(service) => service.tenants(),
        }
    }

    fn try_take(self, key: Key, class: Class, weight: u64) -> Result<Permit, NoPermit> {
        match &self.0.permits {
            Permits::Each { number, table } => match table.enter(key.as_ref(), number, false) {
                Entered::Taken => Ok(self.given(key, None)),
                Entered::Waiting(_) | Entered::Full(_) => {
                    self.refused(key.as_ref(), None);
                    Err(self.none(NoPermitKind::Permits))
                }
            },
            Permits::Service(service) => match service.ask(&key, class, weight, false) {
                Asked::Taken(begun) => Ok(self.given(key, Some(begun))),
                Asked::Spared(begun) => Ok(self.spared(key, begun)),
                Asked::Waiting(..) | Asked::Full(_) => {
                    self.refused(key.as_ref(), Some(class));
                    Err(self.none(NoPermitKind::Permits))
                }
            },
        }
    }

    fn enter(self, key: Key, class: Class, weight: u64) -> Acquire {
        let (kind, class) = match &self.0.permits {
            Permits::Each { number, table } => match table.enter(key.as_ref(), number, true) {
                Entered::Taken => return Acquire::ready(Ok(self.given(key, None))),
                Entered::Waiting(place) => return Acquire::waiting(self, key, place, None),
                Entered::Full(kind) => (kind, None),
            },
            Permits::Service(service) => match service.ask(&key, class, weight, true) {
                Asked::Taken(begun) => return Acquire::ready(Ok(self.given(key, Some(begun)))),
                Asked::Spared(begun) => return Acquire::ready(Ok(self.spared(key, begun))),
                Asked::Waiting(place, seat, lost) => {
                    self.tell_lost(lost);
                    return Acquire::waiting(self, key, place, Some(seat));
                }
                Asked::Full(kind) => (kind, Some(class)),
            },
        };
        self.refused(key.as_ref(), class);
        Acquire::ready(Err(self.none(kind)))
    }

    /// The permit of a request that has waited.
    fn given_in_turn(&self, key: Key, class: Option<Class>) -> Permit {
        let begun = match (&self.0.permits, class) {
            (Permits::Service(service), Some(class)) => Some(service.begin(class)),
            _ => None,
        };
        self.given(key, begun)
    }

    fn given(&self, key: Key, begun: Option<Begun>) -> Permit {
        self.tell(|| Event::PermitTaken(Subject::of(&self.0.name).with_key(key.as_ref())));
        Permit::new(self.clone(), key, begun)
    }

    /// A permit that the request would not get if the limit were enforced.
    fn spared(&self, key: Key, begun: Begun) -> Permit {
        let class = begun.class;
        self.tell(|| {
            let subject = Subject::of(&self.0.name).with_key(key.as_ref());
            Event::Shed { subject, class, is_enforced: false }
        });
        self.given(key, Some(begun))
    }

    fn tell_lost(&self, lost: Lost) {
        let Some((class, key, waker)) = lost else { return };
        self.refused(key.as_ref(), Some(class));
        waker.into_iter().for_each(Waker::wake);
    }

    /// Tells listeners that a request was refused, with its class if the limit adapts.
    fn refused(&self, key: KeyRef<'_>, class: Option<Class>) {
        self.tell(|| {
            let subject = Subject::of(&self.0.name).with_key(key);
            match class {
                Some(class) => Event::Shed { subject, class, is_enforced: true },
                None => Event::PermitRefused(subject),
            }
        });
    }

    fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if !self.0.listeners.is_empty() {
            self.0.listeners.tell(&event());
        }
    }

    fn none(&self, kind: NoPermitKind) -> NoPermit {
        NoPermit::new(kind, self.0.name.clone(), self.permits())
    }

    fn answered(&self, begun: &Begun, is_fault: bool) {
        if let Permits::Service(service) = &self.0.permits {
            service.answered(begun, is_fault);
        }
    }

    fn leave(&self, key: &Key, begun: Option<&Begun>, is_answered: bool) {
        match (&self.0.permits, begun) {
            (Permits::Each { number, table }, _) => table.leave(key.as_ref(), number),
            (Permits::Service(service), Some(begun)) => service.put_back(key, begun, is_answered),
            (Permits::Service(_), None) => {}
        }
    }

    fn give_up(&self, key: &Key, place: &Arc<Place>, seat: Option<&Seat>, is_shed: bool) {
        match (&self.0.permits, seat) {
            (Permits::Each { number, table }, _) => table.give_up(key.as_ref(), place, number),
            (Permits::Service(service), Some(seat)) => service.give_up(key, place, seat, is_shed),
            (Permits::Service(_), None) => {}
        }
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InFlight({}: {} at once)", self.0.name, self.permits())
    }
}

/// Collects the settings of an [`InFlight`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct InFlightBuilder {
    name: String,
    permits: u64,
    queue: usize,
    queue_in_all: usize,
}

impl InFlightBuilder {
    /// Sets how many requests may wait for a permit of one key. Default: 100.
    ///
    /// With 0 no request waits: [`acquire`](InFlight::acquire) answers at once, as
    /// [`try_acquire`](InFlight::try_acquire) does.
    pub fn queue(mut self, per_key: usize) -> Self {
        self.queue = per_key;
        self
    }

    /// Sets how many requests may wait for permits of all keys together. Default: 1,000.
    ///
    /// It bounds the memory of waiting, whatever the number of keys.
    pub fn queue_in_all(mut self, waiting: usize) -> Self {
        self.queue_in_all = waiting;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When there are no permits, or more than 1,000,000, and for a name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    pub fn build(self) -> Result<InFlight, ConfigError> {
        let Self { name, permits, queue, queue_in_all } = self;
        check_name("name for requests in flight", &name)?;
        check_permits(&name, permits)?;
        let table = Table::new(queue, queue_in_all);
        let permits = Permits::Each { number: AtomicU64::new(permits), table };
        Ok(InFlight(Arc::new(Inner { name, permits, listeners: Listeners::default() })))
    }
}

fn check_permits(name: &str, permits: u64) -> Result<(), ConfigError> {
    const MOST: u64 = 1_000_000;
    if (1..=MOST).contains(&permits) {
        return Ok(());
    }
    let problem = format!("{name:?} cannot have {permits} permits: use 1 to {MOST}");
    Err(ConfigError::new(ConfigErrorKind::Policy, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_named() {
        for (name, permits, shown) in [
            ("uploads", 0, "0 permits"),
            ("uploads", 1_000_001, "1000001 permits"),
            ("up load", 1, "\"up load\""),
        ] {
            let message = InFlight::new(name, permits).unwrap_err().to_string();
            assert!(message.contains(shown) && message.contains("use 1 to"), "{message}");
        }
        let uploads = InFlight::new("uploads", 3).unwrap();
        assert!(uploads.set_permits(0).is_err());
        assert_eq!(uploads.permits(), 3);
    }

    /// Between the moment at which there are more permits and that at which those who wait get them.
    #[test]
    fn nobody_overtakes_those_who_wait_when_there_are_more_permits() {
        let uploads = InFlight::new("uploads", 1).unwrap();
        let _first = uploads.try_acquire("ada").unwrap();
        let waiting = uploads.acquire("ada");
        let Permits::Each { number, table } = &uploads.0.permits else { panic!("it is a fixed number") };
        number.store(2, Ordering::Relaxed);
        assert_eq!(uploads.try_acquire("ada").unwrap_err().kind(), NoPermitKind::Permits);
        let behind = uploads.acquire("ada");
        table.pass_on(number);
        assert_eq!(uploads.in_use("ada"), 2);
        drop(waiting);
        assert_eq!(uploads.in_use("ada"), 2, "the next in the queue has it");
        drop(behind);
        assert_eq!(uploads.in_use("ada"), 1);
    }

    #[test]
    fn keys_without_permits_out_take_no_room() {
        let uploads = InFlight::new("uploads", 3).unwrap();
        let held: Vec<_> = (0..1_000_u64).map(|key| uploads.try_acquire(key).unwrap()).collect();
        assert_eq!((uploads.keys(), uploads.remaining(7)), (1_000, 2));
        drop(held);
        let Permits::Each { table, .. } = &uploads.0.permits else { panic!("it is a fixed number") };
        assert_eq!((uploads.keys(), uploads.remaining(7), table.room()), (0, 3, 0));
    }
}
