//! The handle of a limit: [`InFlight`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::key::AsKey;
#[cfg(doc)]
use sluicegate_core::store::Event;
use sluicegate_core::store::{Listener, SharedPermits};

#[cfg(any(doc, test))]
use crate::NoPermitKind;
use crate::builder::check_permits;
use crate::registry::Reports;
use crate::service::ServicePermits;
use crate::shared::InstancePermits;
use crate::table::PermitTable;
use crate::{
    Acquire, AdaptiveBuilder, AdaptiveStatus, InFlightBuilder, NoPermit, Permit, PermitRequest, SharedStatus,
    Sharing,
};

/// Limits the work of a key at one time: uploads of a tenant, connections of an
/// address.
///
/// A rate limits how often work begins; this limits how much work runs at once, for work that
/// takes long. Each [`Permit`] is one of its key's permits, held until it is dropped. It counts within
/// one process; clones are handles to the same permits.
///
/// ```
/// use sluicegate_in_flight::InFlight;
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
/// First come, first served, per key: no request overtakes waiting requests, not even by
/// [`try_acquire`](Self::try_acquire). Keys do not wait for each other.
///
/// # Memory
/// Only keys with permits in use take room, about 150 bytes each, and waiting takes room only within
/// the bounds of [`InFlightBuilder::queue`].
#[derive(Clone)]
pub struct InFlight(pub(crate) Arc<NamedPermits>);

pub(crate) struct NamedPermits {
    pub(crate) name: String,
    pub(crate) permits: Permits,
    /// `Some` if it was put on a store.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) reports: Arc<Reports>,
}

/// The kinds of limits.
pub(crate) enum Permits {
    /// A fixed number, equal for each key.
    Each(PermitTable),
    /// The number that a service can handle, for all keys together.
    Service(Box<ServicePermits>),
    /// A fixed number, equal for each key, that instances share on a store.
    Shared(Arc<InstancePermits>),
}

impl Permits {
    pub(crate) fn service(&self) -> Option<&ServicePermits> {
        if let Self::Service(service) = self { Some(service) } else { None }
    }

    pub(crate) fn shared(&self) -> Option<&InstancePermits> {
        if let Self::Shared(shared) = self { Some(shared) } else { None }
    }
}

impl Drop for NamedPermits {
    fn drop(&mut self) {
        self.permits.shared().into_iter().for_each(InstancePermits::close);
    }
}

impl InFlight {
    /// Gives each key this many `permits`. The name appears in headers and logs.
    ///
    /// # Errors
    /// As [`InFlightBuilder::build`].
    pub fn new(name: impl Into<String>, permits: u64) -> Result<Self, ConfigError> {
        Self::builder(name, permits).build()
    }

    /// Starts with settings other than those of [`new`](Self::new).
    pub fn builder(name: impl Into<String>, permits: u64) -> InFlightBuilder {
        InFlightBuilder::new(name.into(), permits)
    }

    /// Gives out as many permits as a service can bear, for all keys together: the number follows how long requests take, and how many
    /// answers speak of overload.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate_in_flight::adaptive::Outcome;
    /// use sluicegate_in_flight::{Class, InFlight};
    ///
    /// let api = InFlight::adaptive("api").at_most(2).build()?;
    /// let one = api.request("ada").try_acquire()?;
    /// let two = api.request("bob").class(Class::Sheddable).try_acquire()?;
    /// // The service is busy: two wait for up to 100 ms, and the more important one goes first.
    /// let third = api.request("bob").class(Class::Sheddable).acquire();
    /// let fourth = api.request("ada").class(Class::CriticalPlus).acquire();
    /// one.answered(Outcome::Good);
    /// drop(one);
    /// let fourth = fourth.await?;
    /// # drop((two, third, fourth));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Caveats
    /// - Each permit has to report that its request is [answered](Permit::answered); otherwise there are no samples, and the number does
    ///   not change.
    /// - The key names the tenant of a request. It makes a difference only if the permits are [shared by keys](AdaptiveBuilder::fair).
    /// - The number is for this process only: other instances have their own.
    pub fn adaptive(name: impl Into<String>) -> AdaptiveBuilder {
        AdaptiveBuilder::new(name.into())
    }

    pub(crate) fn adapting(builder: AdaptiveBuilder, clock: Arc<dyn Clock>) -> Self {
        let permits = Permits::Service(Box::new(ServicePermits::new(&builder, clock)));
        Self::registered(NamedPermits { name: builder.name, permits, sharing: None, reports: Arc::default() })
    }

    /// Begins a request for a permit, with more settings than its key.
    pub fn request(&self, key: impl AsKey) -> PermitRequest {
        key.with_key(|key| PermitRequest::new(self.clone(), key.to_key()))
    }

    /// Takes a permit now, if one is free and no request waits for it. A permit that instances [share](InFlightBuilder::on) needs a
    /// call: use [`attempt`](PermitRequest::attempt), which does not wait for a permit to come back.
    ///
    /// # Errors
    /// [`NoPermitKind::Permits`] when all permits of the key are in use; [`NoPermitKind::Shared`] when a store has to be asked.
    pub fn try_acquire(&self, key: impl AsKey) -> Result<Permit, NoPermit> {
        self.request(key).try_acquire()
    }

    /// Takes a permit as soon as there is one: first come, first served, in the order of the calls.
    ///
    /// The caller bounds the wait, for example with `tokio::time::timeout`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use sluicegate_in_flight::InFlight;
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
    /// Dropping the future leaves the queue; a permit that was given to it goes to the next request.
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

    /// The number of permits that each key has; if the limit adapts, the current number of all keys together.
    pub fn permits(&self) -> u64 {
        match &self.0.permits {
            Permits::Each(table) => table.number.load(Ordering::Relaxed),
            Permits::Service(service) => service.limit(),
            Permits::Shared(shared) => shared.permits(),
        }
    }

    /// Gives each key another number of permits, for all clones. If there are more, waiting requests get permits at once; if
    /// there are fewer, permits in use stay in use until they are dropped. Instances that [share](InFlightBuilder::on) permits each
    /// have their own number: above the lowest number, only instances with a higher one get permits.
    ///
    /// # Errors
    /// As [`InFlightBuilder::build`]; the old number then stays.
    ///
    /// ```
    /// use sluicegate_in_flight::InFlight;
    ///
    /// let jobs = InFlight::new("jobs", 3)?;
    /// let held: Vec<_> = (0..3).map(|_| jobs.try_acquire("ada")).collect::<Result<_, _>>()?;
    /// jobs.set_permits(1)?;
    /// assert_eq!((jobs.in_use("ada"), jobs.remaining("ada")), (3, 0)); // no permit is taken away
    /// drop(held);
    /// assert_eq!(jobs.remaining("ada"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_permits(&self, permits: u64) -> Result<(), ConfigError> {
        check_permits(&self.0.name, permits)?;
        match &self.0.permits {
            Permits::Each(table) => {
                // Relaxed: decisions load it under the lock of a part, and `pass_on` visits each part after this.
                table.number.store(permits, Ordering::Relaxed);
                table.pass_on();
            }
            Permits::Shared(shared) => shared.set_permits(permits),
            Permits::Service(_) => {
                let problem = format!("{:?} adapts its number: use `set_adaptive`", self.0.name);
                return Err(ConfigError::new(ConfigErrorKind::Policy, problem));
            }
        }
        Ok(())
    }

    /// Gives a limit that adapts other settings, for all clones. It keeps its estimate, unless the algorithm changes.
    ///
    /// # Errors
    /// As [`AdaptiveBuilder::build`]; for another name, for settings that start or stop sharing by keys, and if the number is fixed. The
    /// old settings then stay.
    pub fn set_adaptive(&self, settings: &AdaptiveBuilder) -> Result<(), ConfigError> {
        let Some(service) = self.0.permits.service() else {
            let problem = format!("{:?} has a fixed number: use `set_permits`", self.0.name);
            return Err(ConfigError::new(ConfigErrorKind::Policy, problem));
        };
        service.set(&self.0.name, settings)
    }

    /// The state of a limit that adapts; `None` if the number is fixed.
    pub fn status(&self) -> Option<AdaptiveStatus> {
        self.0.permits.service().map(ServicePermits::status)
    }

    /// The state of permits that instances share; `None` if they belong to this process.
    pub fn shared_status(&self) -> Option<SharedStatus> {
        self.0.permits.shared().map(InstancePermits::status)
    }

    /// Estimates the time until all current and waiting requests are done, from the rate at which permits came back in the last
    /// second: a retry makes sense after that. At most a minute; `None` if the number is fixed.
    pub fn drains_in(&self) -> Option<Duration> {
        self.0.permits.service().map(ServicePermits::drain)
    }

    /// Whether the number follows the load that a service can handle.
    pub fn is_adaptive(&self) -> bool {
        self.0.permits.service().is_some()
    }

    /// How instances share the permits; `None` if it was not put [on a store](InFlightBuilder::on).
    pub fn sharing(&self) -> Option<Sharing> {
        self.0.sharing
    }

    /// The number of permits that this instance has [lost](Permit::is_lost) so far; 0 if they belong to this process.
    pub fn lost(&self) -> u64 {
        self.0.permits.shared().map_or(0, InstancePermits::lost)
    }

    /// The number of the key's permits in use; of all keys, if keys make no difference. If instances share them, only the permits of this
    /// instance.
    pub fn in_use(&self, key: impl AsKey) -> u64 {
        match &self.0.permits {
            Permits::Each(table) => key.with_key(|key| table.in_use(key)),
            Permits::Service(service) => key.with_key(|key| service.in_use_of(&key.to_key())),
            Permits::Shared(shared) => key.with_key(|key| shared.in_use(key)),
        }
    }

    /// The number of permits that are left, for the key, or for all keys if the limit adapts. If instances share them, as of the store's
    /// last answer, and all of them for a key that this instance has not used recently.
    pub fn remaining(&self, key: impl AsKey) -> u64 {
        match &self.0.permits {
            Permits::Each(_) => self.permits().saturating_sub(self.in_use(key)),
            Permits::Service(service) => service.limit().saturating_sub(service.in_use()),
            Permits::Shared(shared) => key.with_key(|key| shared.remaining(key)),
        }
    }

    /// The number of permits in use, for all keys together. If instances share them, only the permits of this instance.
    pub fn in_use_in_all(&self) -> u64 {
        match &self.0.permits {
            Permits::Each(table) => table.in_use_in_all(),
            Permits::Service(service) => service.in_use(),
            Permits::Shared(shared) => shared.in_use_in_all(),
        }
    }

    /// Adds a listener, which gets an event from now on for each taken permit and each refused request:
    /// [`Event::PermitTaken`], [`Event::PermitRefused`]; if the limit adapts, [`Event::Shed`], and [`Event::LimitMoved`] when its number
    /// changes; and [`Event::PermitLost`] if instances share it.
    pub fn listen(&self, listener: Arc<dyn Listener>) {
        self.0.reports.listeners.add(listener);
    }

    /// The number of keys with permits in use; if keys make no difference, 1 if any is in use.
    ///
    /// Locks each of the 64 parts once: for a gauge, not for each request.
    pub fn keys(&self) -> usize {
        match &self.0.permits {
            Permits::Each(table) => table.keys(),
            Permits::Service(service) => service.tenants(),
            Permits::Shared(shared) => shared.keys(),
        }
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InFlight({}: {} at once)", self.0.name, self.permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the increase of the permits and the moment at which waiting requests get them.
    #[test]
    fn nobody_overtakes_those_who_wait_when_there_are_more_permits() {
        let uploads = InFlight::new("uploads", 1).unwrap();
        let _first = uploads.try_acquire("ada").unwrap();
        let waiting = uploads.acquire("ada");
        let Permits::Each(table) = &uploads.0.permits else { panic!("it is a fixed number") };
        table.number.store(2, Ordering::Relaxed);
        assert_eq!(uploads.try_acquire("ada").unwrap_err().kind(), NoPermitKind::Permits);
        let behind = uploads.acquire("ada");
        table.pass_on();
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
        let Permits::Each(table) = &uploads.0.permits else { panic!("it is a fixed number") };
        assert_eq!((uploads.keys(), uploads.remaining(7), table.room()), (0, 3, 0));
    }
}
