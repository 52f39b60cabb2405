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
//! # When not to use it
//! For a bound over all instances of a service, for one that has to survive a crash of the process,
//! and to limit CPU work that never yields.

pub mod adaptive;
mod busy;
mod permit;
mod table;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::busy::{NoPermit, NoPermitKind};
pub use self::permit::{Acquire, Permit};
use self::table::{Entered, Place, Table};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::{AsKey, KeyRef};
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
    permits: AtomicU64,
    table: Table,
    listeners: Listeners,
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

    /// Takes a permit now, if one is free and no request waits for it.
    ///
    /// # Errors
    /// [`NoPermitKind::Permits`] when all permits of the key are out.
    pub fn try_acquire(&self, key: impl AsKey) -> Result<Permit, NoPermit> {
        key.with_key(|key| match self.0.table.enter(key, &self.0.permits, false) {
            Entered::Taken => Ok(self.permit(key)),
            Entered::Waiting(_) | Entered::Full(_) => Err(self.busy(key, NoPermitKind::Permits)),
        })
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
        key.with_key(|key| match self.0.table.enter(key, &self.0.permits, true) {
            Entered::Taken => Acquire::ready(Ok(self.permit(key))),
            Entered::Waiting(place) => Acquire::waiting(self.clone(), key.to_key(), place),
            Entered::Full(kind) => Acquire::ready(Err(self.busy(key, kind))),
        })
    }

    /// The name that headers show.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether both count the same requests: one is a clone of the other.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The number of permits that each key has.
    pub fn permits(&self) -> u64 {
        self.0.permits.load(Ordering::Relaxed)
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
        // Relaxed: decisions load it under the lock of a part, and `pass_on` visits each part after this.
        self.0.permits.store(permits, Ordering::Relaxed);
        self.0.table.pass_on(&self.0.permits);
        Ok(())
    }

    /// The number of the key's permits that are out.
    pub fn in_use(&self, key: impl AsKey) -> u64 {
        key.with_key(|key| self.0.table.in_use(key))
    }

    /// The number of the key's permits that are left.
    pub fn remaining(&self, key: impl AsKey) -> u64 {
        self.permits().saturating_sub(self.in_use(key))
    }

    /// The number of permits that are out, for all keys together.
    pub fn in_use_in_all(&self) -> u64 {
        self.0.table.in_use_in_all()
    }

    /// Adds a listener, which hears from now on of each permit that is taken and of each request that is refused:
    /// [`Event::PermitTaken`], [`Event::PermitRefused`].
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.0.listeners.add(listener);
    }

    /// Tells the listeners that a request waited for a permit for as long as it may, and was refused. For authors of layers, who
    /// alone know how long that is.
    pub fn waited_in_vain(&self, key: impl AsKey) {
        key.with_key(|key| self.tell(key, true));
    }

    fn tell(&self, key: KeyRef<'_>, is_refused: bool) {
        if self.0.listeners.is_empty() {
            return;
        }
        let subject = Subject::of(&self.0.name).with_key(key);
        self.0.listeners.tell(&match is_refused {
            true => Event::PermitRefused(subject),
            false => Event::PermitTaken(subject),
        });
    }

    /// The number of keys that have permits out.
    ///
    /// Locks each of the 64 parts once: for a gauge, not for each request.
    pub fn keys(&self) -> usize {
        self.0.table.keys()
    }

    fn permit(&self, key: KeyRef<'_>) -> Permit {
        self.tell(key, false);
        Permit::new(self.clone(), key.to_key())
    }

    fn busy(&self, key: KeyRef<'_>, kind: NoPermitKind) -> NoPermit {
        self.tell(key, true);
        NoPermit::new(kind, self.0.name.clone(), self.permits())
    }

    fn leave(&self, key: KeyRef<'_>) {
        self.0.table.leave(key, &self.0.permits);
    }

    fn give_up(&self, key: KeyRef<'_>, place: &Arc<Place>) {
        self.0.table.give_up(key, place, &self.0.permits);
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
        let permits = AtomicU64::new(permits);
        Ok(InFlight(Arc::new(Inner {
            name,
            permits,
            table: Table::new(queue, queue_in_all),
            listeners: Listeners::default(),
        })))
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
        uploads.0.permits.store(2, Ordering::Relaxed);
        assert_eq!(uploads.try_acquire("ada").unwrap_err().kind(), NoPermitKind::Permits);
        let behind = uploads.acquire("ada");
        uploads.0.table.pass_on(&uploads.0.permits);
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
        assert_eq!((uploads.keys(), uploads.remaining(7), uploads.0.table.room()), (0, 3, 0));
    }
}
