//! The settings of a fixed number at once: [`InFlightBuilder`].

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::SystemClock;
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::policy::{OnOutage, check_name};
use sluicegate_core::store::{IntoStore, SharedPermits, Store, note_counted_alone};

use crate::in_flight::{NamedPermits, Permits};
use crate::registry::Reports;
use crate::shared::InstancePermits;
use crate::table::PermitTable;
use crate::{InFlight, Sharing};

/// Collects the settings of an [`InFlight`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct InFlightBuilder {
    name: String,
    permits: u64,
    queue: usize,
    queue_in_all: usize,
    sharing: Sharing,
}

impl InFlightBuilder {
    pub(super) fn new(name: String, permits: u64) -> Self {
        Self { name, permits, queue: 100, queue_in_all: 1_000, sharing: Sharing::default() }
    }

    /// Sets how many requests may wait for a permit of one key. Default: 100.
    ///
    /// With 0 no request waits: [`acquire`](InFlight::acquire) answers at once, as
    /// [`try_acquire`](InFlight::try_acquire) does.
    pub fn queue(mut self, per_key: usize) -> Self {
        self.queue = per_key;
        self
    }

    /// Sets how many requests may wait for permits of all keys together, on this instance. Default: 1,000.
    ///
    /// It bounds the memory of waiting, whatever the number of keys.
    pub fn queue_in_all(mut self, waiting: usize) -> Self {
        self.queue_in_all = waiting;
        self
    }

    /// Sets the time after which the permits of a silent instance are given to others, for permits that
    /// instances [share](Self::on). Default: 15 s.
    ///
    /// From 1 s to 1 h. The permits of an instance that crashes are back after this time. Three times in this span, an instance
    /// confirms its permits; an instance that cannot, or is paused for longer, has [lost](crate::Permit::lost) them.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.sharing.lease = lease;
        self
    }

    /// Sets the treatment of requests while the store gives no answer, for permits that instances [share](Self::on): `Local` gives out
    /// the part of [one replica](Self::replicas) on each instance, `Allow` gives each request a permit, and `Deny` refuses. Default:
    /// [`OnOutage::Local`].
    pub fn on_outage(mut self, on_outage: OnOutage) -> Self {
        self.sharing.on_outage = on_outage;
        self
    }

    /// Sets the number of instances: in an outage under [`OnOutage::Local`], each gives out its part, and at least one permit of each key.
    /// Default: 1, so that each gives out the whole number.
    pub fn replicas(mut self, instances: u64) -> Self {
        self.sharing.replicas = instances;
        self
    }

    /// Checks the settings, and counts in this process: each instance gives out all permits. In a process that also has a store that
    /// instances share, the log says so; [`on`](Self::on) shares them.
    ///
    /// # Errors
    /// When there are no permits, or more than 1,000,000, and for a name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    pub fn build(self) -> Result<InFlight, ConfigError> {
        self.check()?;
        note_counted_alone(&self.name);
        Ok(self.here(None))
    }

    /// Counts in this process.
    fn here(self, sharing: Option<Sharing>) -> InFlight {
        let permits = Permits::Each(PermitTable::new(self.permits, (self.queue, self.queue_in_all)));
        InFlight::registered(NamedPermits { name: self.name, permits, sharing, reports: Arc::default() })
    }

    /// Checks the settings, and counts on a store: all instances of a service on a shared store have this number of permits together,
    /// by the store's clock. A [`MemoryStore`](sluicegate_core::MemoryStore) counts in this process, as [`build`](Self::build).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sluicegate_in_flight::InFlight;
    /// use sluicegate_core::{MemoryStore, OnOutage};
    ///
    /// let store = MemoryStore::new(); // or a store on Redis
    /// let imports = InFlight::builder("imports", 2).on_outage(OnOutage::Deny).on(&store)?;
    /// let first = imports.acquire("acme").await?;
    /// let second = imports.acquire("acme").await?;
    /// assert!(imports.request("acme").attempt().await.is_err());
    /// # drop((first, second));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Across instances
    /// - Taking a permit costs a call. A dropped permit goes back in the background.
    /// - Requests on one instance are served first come, first served. A permit that comes back stays on its instance while
    ///   requests wait there, unless a request on another instance has waited a quarter of a second longer.
    /// - A permit that no longer counts is [lost](crate::Permit::lost), and its holder is notified. The holder is not stopped: its
    ///   work continues beside the work of the next holder, unless it checks.
    ///
    /// # Errors
    /// As [`build`](Self::build); for a lease below 1 s or above 1 h, no replicas, and [`OnOutage::Quota`]; and when the store shares no
    /// permits.
    pub fn on(self, store: impl IntoStore) -> Result<InFlight, ConfigError> {
        self.check()?;
        self.sharing.check(&self.name)?;
        let store: Arc<dyn Store> = store.into();
        let reports = Arc::<Reports>::default();
        let shared = Arc::new(InstancePermits::new(
            self.name.clone(),
            (self.permits, self.sharing),
            (self.queue, self.queue_in_all),
            Arc::new(SystemClock::new()),
            Arc::clone(&reports),
        ));
        let sharing = Some(self.sharing);
        let of_store: Arc<dyn SharedPermits> = Arc::clone(&shared) as _;
        if !store.share_permits(&of_store)? {
            return Ok(self.here(sharing));
        }
        let permits = Permits::Shared(shared);
        Ok(InFlight::registered(NamedPermits { name: self.name, permits, sharing, reports }))
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_name("name for requests in flight", &self.name)?;
        check_permits(&self.name, self.permits)
    }
}

pub(super) fn check_permits(name: &str, permits: u64) -> Result<(), ConfigError> {
    const MOST: u64 = 1_000_000;
    if (1..=MOST).contains(&permits) {
        return Ok(());
    }
    let problem = format!("{name:?} cannot have {permits} permits: use 1 to {MOST}");
    Err(ConfigError::new(ConfigErrorKind::Policy, problem))
}

#[cfg(test)]
mod tests {
    use sluicegate_core::{MemoryStore, Quota};

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

    #[test]
    fn sharing_that_cannot_work_is_named() {
        let jobs = || InFlight::builder("jobs", 3);
        for (builder, shown) in [
            (jobs().lease(Duration::from_millis(999)), "a lease of 999ms: use 1 s to 1 h"),
            (jobs().lease(Duration::from_secs(3_601)), "a lease of 3601s: use 1 s to 1 h"),
            (jobs().replicas(0), "0 instances: use 1 or more"),
            (jobs().on_outage(OnOutage::Quota(Quota::per_second(5))), "5/s cannot stand for it"),
            (InFlight::builder("jobs", 0), "0 permits"),
        ] {
            let message = builder.on(MemoryStore::new()).unwrap_err().to_string();
            assert!(message.contains(shown), "{message}");
        }
    }
}
