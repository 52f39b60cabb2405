//! The settings of a limit: [`InFlightBuilder`] for a fixed number, and [`AdaptiveBuilder`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock, micros};
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::policy::{OnOutage, PolicyMode, check_name};
use sluicegate_core::store::{IntoStore, SharedPermits, Store, note_counted_alone};

#[cfg(doc)]
use crate::Permit;
use crate::adaptive::{LimitAlgorithm, LimitBounds};
use crate::in_flight::{NamedPermits, Reports, check_permits};
use crate::line::QueueBounds;
use crate::pool::{FixedPermits, PermitPool};
use crate::service::{ServicePermits, ServiceSettings};
use crate::shared::InstancePermits;
use crate::table::PermitTable;
use crate::{Class, InFlight, Sharing};

/// Making a limit.
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
        let fixed = FixedPermits { number: permits, queue: 100, queue_in_all: 1_000 };
        InFlightBuilder { name: name.into(), fixed, sharing: Sharing::default() }
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
        let settings = ServiceSettings {
            algorithm: LimitAlgorithm::default(),
            bounds: LimitBounds::default(),
            timeout_us: None,
            waits: QueueBounds { queue: 1_000, longest_us: 100_000, guaranteed: [0; 4] },
            mode: PolicyMode::Enforce,
        };
        AdaptiveBuilder { name: name.into(), settings, is_fair: false, clock: None }
    }

    /// Gives a limit that adapts other settings, for all clones. It keeps its estimate, unless the algorithm changes.
    ///
    /// # Errors
    /// As [`AdaptiveBuilder::build`]; for another name, for settings that start or stop sharing by keys, and if the number is fixed. The
    /// old settings then stay.
    pub fn set_adaptive(&self, settings: &AdaptiveBuilder) -> Result<(), ConfigError> {
        let Some(service) = &self.0.service else {
            return Err(self.problem("has a fixed number: use `set_permits`"));
        };
        settings.check()?;
        if settings.name != self.0.name {
            let problem = format!("cannot become {:?}: use settings of the same name", settings.name);
            return Err(self.problem(&problem));
        }
        service.set(settings.settings, settings.is_fair).map_err(|problem| self.problem(problem))
    }
}

/// Collects the settings of an [`InFlight`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct InFlightBuilder {
    name: String,
    fixed: FixedPermits,
    sharing: Sharing,
}

impl InFlightBuilder {
    /// Sets how many requests may wait for a permit of one key. Default: 100.
    ///
    /// With 0 no request waits: [`acquire`](InFlight::acquire) answers at once, as
    /// [`try_acquire`](InFlight::try_acquire) does.
    pub fn queue(mut self, per_key: usize) -> Self {
        self.fixed.queue = per_key;
        self
    }

    /// Sets how many requests may wait for permits of all keys together, on this instance. Default: 1,000.
    ///
    /// It bounds the memory of waiting, whatever the number of keys.
    pub fn queue_in_all(mut self, waiting: usize) -> Self {
        self.fixed.queue_in_all = waiting;
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
        let pool = Arc::new(PermitTable::new(self.fixed));
        InFlight::registered(NamedPermits {
            name: self.name,
            pool,
            service: None,
            sharing,
            reports: Arc::default(),
        })
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
            self.fixed,
            self.sharing,
            Arc::new(SystemClock::new()),
            Arc::clone(&reports),
        ));
        let sharing = Some(self.sharing);
        let of_store: Arc<dyn SharedPermits> = Arc::clone(&shared) as _;
        if !store.share_permits(&of_store)? {
            return Ok(self.here(sharing));
        }
        let pool: Arc<dyn PermitPool> = shared;
        Ok(InFlight::registered(NamedPermits { name: self.name, pool, service: None, sharing, reports }))
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_name("name for requests in flight", &self.name)?;
        check_permits(&self.name, self.fixed.number)
    }
}

/// Collects the settings of an [`InFlight::adaptive`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct AdaptiveBuilder {
    name: String,
    pub(super) settings: ServiceSettings,
    is_fair: bool,
    clock: Option<Arc<dyn Clock>>,
}

impl AdaptiveBuilder {
    /// Sets how the number follows the service. Default: [`LimitAlgorithm::Gradient`].
    pub fn algorithm(mut self, algorithm: LimitAlgorithm) -> Self {
        self.settings.algorithm = algorithm;
        self
    }

    /// Sets the smallest number of requests at once. Default: 1; a number that follows latency also stays above a quarter of the highest
    /// number that was fine, which it forgets only while the service is too slow.
    pub fn at_least(mut self, requests: u64) -> Self {
        self.settings.bounds.at_least = requests;
        self
    }

    /// Sets the largest number of requests at once. Default: 1,000.
    ///
    /// With the same number as [`at_least`](Self::at_least) the limit is fixed, for classes and fair parts of it.
    pub fn at_most(mut self, requests: u64) -> Self {
        self.settings.bounds.at_most = requests;
        self
    }

    /// Sets the number of requests at once before there are samples; if it is outside of the bounds, the nearer bound. A number that
    /// follows latency doubles at once with demand. Default: 20.
    pub fn first(mut self, requests: u64) -> Self {
        self.settings.bounds.first = requests;
        self
    }

    /// Counts an answer that takes longer than this as [overload](crate::adaptive::Outcome::Overload), and also a request that is dropped
    /// unanswered after this time. Default: no answer is by its latency, and a dropped request is no sample.
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.settings.timeout_us = Some(micros(longest));
        self
    }

    /// Sets the longest wait of a request for a permit. Default: 100 ms; with [`Duration::ZERO`] no request waits.
    ///
    /// When the queue of its class and key has not been empty for this long, a new request waits at most a twentieth of it, and
    /// the newest is served first, because its client is most likely still connected. Unless the permits are [shared by
    /// keys](Self::fair), the requests of all keys are one queue.
    ///
    /// # Source
    /// Maurer: "Fail at Scale" (ACM Queue, 2015), "Controlled Delay" and "Adaptive LIFO", with 100 ms and 5 ms. Deviation: one
    /// queue for each class and key, so that the standing queue of one does not shorten the waits of another.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.settings.waits.longest_us = micros(longest);
        self
    }

    /// Sets the most requests that wait. Default: 1,000.
    ///
    /// When the queue is full, a more important request takes the place of a less important one. If the permits are [shared by
    /// keys](Self::fair), a request also takes the place of one of its class whose key has and wants more.
    pub fn queue(mut self, longest: usize) -> Self {
        self.settings.waits.queue = longest;
        self
    }

    /// Sets the part of the number that requests of a class get before requests of other classes, in percent: while fewer of them are
    /// in progress, they get the next permit that comes back. Default: 0, so that classes are served by their order alone.
    pub fn guarantee(mut self, class: Class, percent: u64) -> Self {
        self.settings.waits.guaranteed[class.place()] = percent;
        self
    }

    /// Shares the permits by keys, in proportion to the [weights](crate::PermitRequest::weight) of their requests: within a
    /// class, the next permit goes to the key with the fewest. A key has more than its part only while no other key waits.
    /// Default: keys make no difference.
    pub fn fair(mut self) -> Self {
        self.is_fair = true;
        self
    }

    /// Sets whether the limit is enforced. In [`Shadow`](PolicyMode::Shadow) every request has a permit at once, and requests that would
    /// not have one are counted; when it is [`Off`](PolicyMode::Off), they are not. The number adapts in all modes. Default: enforced.
    pub fn mode(mut self, mode: PolicyMode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Sets the source of time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// For a name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`, for bounds below 1, above 1,000,000 or in the wrong order, and for guaranteed
    /// parts that are more than the whole.
    pub fn build(self) -> Result<InFlight, ConfigError> {
        self.check()?;
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let service = Arc::new(ServicePermits::new(self.settings, self.is_fair, clock));
        let pool: Arc<dyn PermitPool> = Arc::clone(&service) as _;
        Ok(InFlight::registered(NamedPermits {
            name: self.name,
            pool,
            service: Some(service),
            sharing: None,
            reports: Arc::default(),
        }))
    }

    fn check(&self) -> Result<(), ConfigError> {
        const MOST: u64 = 1_000_000;
        check_name("name for requests in flight", &self.name)?;
        let LimitBounds { at_least, at_most, .. } = self.settings.bounds;
        let guaranteed =
            self.settings.waits.guaranteed.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
        let problem = if !(1..=MOST).contains(&at_least) || !(1..=MOST).contains(&at_most) {
            format!("cannot adapt between {at_least} and {at_most} requests at once: use 1 to {MOST}")
        } else if at_least > at_most {
            format!(
                "cannot have at least {at_least} and at most {at_most} requests at once: use a lower number and a higher one"
            )
        } else if guaranteed > 100 {
            format!("guarantees {guaranteed} % of what there is: use at most 100 % for all classes together")
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Policy, format!("{:?} {problem}", self.name)))
    }
}

impl fmt::Debug for AdaptiveBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdaptiveBuilder").field(&self.name).field(&self.settings).finish()
    }
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
