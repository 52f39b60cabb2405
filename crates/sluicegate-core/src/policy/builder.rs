//! Putting a [`Policy`] together.

use std::time::Duration;

use super::Policy;
use super::options::{OnExceeded, OnFull, OnOutage, PolicyMode};
use super::settings::PolicySettings;
use super::suspension::SuspensionDraft;
use super::tightening::TighteningDraft;
use crate::algorithm::{Algorithm, Anchor, Drain, Refill};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::{IntoQuota, Quota};

/// Collects the parts of a [`Policy`]; mistakes are reported by [`build`](Self::build).
///
/// Setters never fail and can come in any order, except [`named`](Self::named), which applies to the
/// quota before it. [`build`](Self::build) gives the policy as data, [`on`](Self::on) a
/// [`RateLimiter`](crate::RateLimiter) on a store.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::policy::OnFull;
/// use sluicegate_core::{MemoryStore, OnOutage, Policy};
///
/// let login = Policy::sliding_log("login", "5/min")
///     .and("50/d").named("daily")
///     .on_outage(OnOutage::Deny)   // no guessing of passwords while Redis is down
///     .on_full(OnFull::Inherit)    // no flood frees a key that has used up its tries
///     .on(&MemoryStore::new())?;
/// assert_eq!(login.policy().to_string(), "login: 5/min, 50/d (sliding-log)");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` or `on` is called"]
pub struct PolicyBuilder {
    pub(super) name: String,
    pub(super) algorithm: Algorithm,
    pub(super) quotas: Vec<(Option<String>, Result<Quota, ConfigError>)>,
    pub(super) settings: PolicySettings,
    pub(super) suspension: Option<SuspensionDraft>,
    pub(super) tightening: TighteningDraft,
}

impl Policy {
    /// Begins a policy. The name appears in headers, logs and metrics, and is the key's namespace in a store.
    ///
    /// Use it for algorithms that are chosen at run time, and for settings without a shorthand, such as
    /// [`Refill::Interval`]:
    ///
    /// ```
    /// use sluicegate_core::algorithm::Refill;
    /// use sluicegate_core::{Algorithm, Policy};
    ///
    /// let prepaid = Policy::builder("prepaid", Algorithm::TokenBucket(Refill::AlignedInterval), "1000/d").build()?;
    /// let configured = Policy::builder("api", "gcra".parse()?, "10/s").build()?;
    /// assert_eq!(configured.algorithm(), Algorithm::Gcra);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn builder(name: impl Into<String>, algorithm: Algorithm, quota: impl IntoQuota) -> PolicyBuilder {
        PolicyBuilder::new(name.into(), algorithm, quota.into_quota())
    }

    /// Begins a policy of fixed windows, on the full minute or hour of UTC. Up to twice the limit
    /// passes within an instant at a border.
    pub fn fixed_window(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::FixedWindow(Anchor::Epoch), quota)
    }

    /// Begins a policy with a sliding window log: never more than the limit in any span of one
    /// period. For logins and payments; the limit is at most 10^6, and memory grows with it. A
    /// [`resolution`](PolicyBuilder::resolution) bounds both.
    pub fn sliding_log(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::SlidingLog, quota)
    }

    /// Begins a policy with a sliding window counter: smooth at any limit, but up to twice the
    /// limit can pass in some span of one period under saturating traffic.
    pub fn sliding_counter(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::SlidingCounter, quota)
    }

    /// Begins a policy with a token bucket that refills continuously; it decides as
    /// [`gcra`](Self::gcra) does.
    pub fn token_bucket(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::TokenBucket(Refill::Greedy), quota)
    }

    /// Begins a policy with a leaky bucket that refuses what does not fit; it decides as
    /// [`gcra`](Self::gcra) does.
    pub fn leaky_bucket(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::LeakyBucket(Drain::Meter), quota)
    }

    /// Begins a policy with a leaky bucket whose output is evenly spaced; the quota's burst is the
    /// queue's length. Requests wait only with
    /// [`wait_up_to`](PolicyBuilder::wait_up_to).
    pub fn leaky_queue(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::LeakyBucket(Drain::Queue), quota)
    }

    /// Begins a policy with GCRA: a burst from rest, then one unit each `period / limit`. Use it
    /// when in doubt.
    pub fn gcra(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::Gcra, quota)
    }
}

impl PolicyBuilder {
    pub(super) fn new(name: String, algorithm: Algorithm, quota: Result<Quota, ConfigError>) -> Self {
        Self {
            name,
            algorithm,
            quotas: vec![(None, quota)],
            settings: PolicySettings::default(),
            suspension: None,
            tightening: TighteningDraft::default(),
        }
    }

    /// Adds a quota: all quotas must have room, and all are spent from, or none.
    ///
    /// At most [16](super::MAX_QUOTAS). The numbers of a decision are those of the tightest quota;
    /// [`Decision::quotas`](crate::Decision::quotas) has all. The quota uses the policy's algorithm, or
    /// [an algorithm of its own](Quota::counted_by).
    pub fn and(mut self, quota: impl IntoQuota) -> Self {
        self.quotas.push((None, quota.into_quota()));
        self
    }

    /// Gives the quota that was added last an id, for headers and for replacing the policy at run time.
    pub fn named(mut self, id: impl Into<String>) -> Self {
        if let Some((last, _)) = self.quotas.last_mut() {
            *last = Some(id.into());
        }
        self
    }

    /// Cuts the period of a sliding log into this many parts, 1 to 1,000: [`Algorithm::SlidingLogIn`].
    ///
    /// All admissions within one part are one entry, so that a log of 20 parts has at most 21 entries, whatever its limit
    /// (which may then be up to 10^8). No more than the limit passes in any span of one period, as without a resolution;
    /// room comes back at most one part late. [`build`](Self::build) refuses it for any other algorithm.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::builder().clock(clock.clone()).build()?;
    /// let uploads = Policy::sliding_log("uploads", "2/min").resolution(20).on(&store)?;
    /// for _ in 0..2 {
    ///     uploads.check("ada").now().expect("memory answers at once")?;
    ///     clock.advance(Duration::from_secs(2)); // both fall into the first three seconds
    /// }
    /// let denied = uploads.check("ada").now().expect("memory answers at once")?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(58))); // 56 without a resolution
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolution(mut self, parts: u32) -> Self {
        match (self.algorithm, self.quotas.first_mut()) {
            (Algorithm::SlidingLog | Algorithm::SlidingLogIn(_), _) => {
                self.algorithm = Algorithm::SlidingLogIn(parts);
            }
            (algorithm, Some((_, quota))) => {
                *quota = Err(ConfigError::new(
                    ConfigErrorKind::Policy,
                    format!(
                        "a resolution of {parts} is for a sliding log, and {algorithm} keeps none: leave it out"
                    ),
                ));
            }
            (_, None) => {}
        }
        self
    }

    /// Sets the treatment of a request that exceeds the policy. Default: [`OnExceeded::Deny`].
    pub fn on_exceeded(mut self, action: OnExceeded) -> Self {
        self.settings.on_exceeded = action;
        self
    }

    /// Makes a request that exceeds the policy wait for its turn for up to `longest`: short for [`OnExceeded::Wait`].
    ///
    /// A request that waits holds its connection and its memory. Behind a proxy, wait for less than
    /// the proxy's own timeout.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
    /// let calls = Policy::gcra("calls", "1/s burst 1").wait_up_to(Duration::from_secs(1)).on(&store)?;
    /// let check = || calls.check("ada").now().expect("memory answers at once");
    /// assert_eq!(check()?.delay(), Duration::ZERO);
    /// assert_eq!(check()?.delay(), Duration::from_secs(1)); // allowed, and has to wait
    /// assert!(!check()?.is_allowed()); // its wait would be two seconds
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_up_to(self, longest: Duration) -> Self {
        self.on_exceeded(OnExceeded::Wait { longest })
    }

    /// Sets the treatment of a request while the store cannot be reached. Default: [`OnOutage::Local`].
    pub fn on_outage(mut self, action: OnOutage) -> Self {
        self.settings.on_outage = action;
        self
    }

    /// Sets whether the policy is enforced, only tried out, or off. Default: [`PolicyMode::Enforce`].
    pub fn mode(mut self, mode: PolicyMode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Only tries the policy out: short for [`PolicyMode::Shadow`].
    pub fn shadow(self) -> Self {
        self.mode(PolicyMode::Shadow)
    }

    /// Hides the policy from clients: it is enforced, but its name and numbers appear neither in header fields nor in
    /// bodies. Use it for limits that would reveal the traffic of other clients, such as one bucket for all of them.
    pub fn hidden(mut self) -> Self {
        self.settings.is_hidden = true;
        self
    }

    /// Counts the policy under this name in metrics and logs instead of its own, together with all others that have this setting: for
    /// policies that are made per customer or per request, possibly thousands of them. The name has the form of a policy's:
    /// `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::new();
    /// let of_tenant = |tenant: u32| Policy::gcra(format!("tenant-{tenant}"), "100/min").counted_as("tenants").on(&store);
    /// assert_eq!(of_tenant(7)?.policy().counted_as(), "tenants");
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn counted_as(mut self, name: impl Into<String>) -> Self {
        self.settings.counted_as = Some(name.into());
        self
    }

    /// Keeps account of refunds, so that a refund [of a receipt](crate::limiter::Change::of) gives back all units that have not
    /// drained, however full the bucket was: for budgets that are estimated and settled. It costs a second word per key in
    /// memory. Without it, all units that have drained since count against the refund, and nothing comes back if keys bring
    /// [quotas of their own](crate::RateLimiter::with_quotas): by which of them the units have drained is then unknown. Layers with a
    /// `Meter` or `refund_if` switch it on by themselves.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// // Ten a minute: one unit drains each 6 s. Of 4 + 5 units two have drained after 12 s, both
    /// // from the first four, so that all five can come back if the policy keeps account.
    /// for (keeps_account, left) in [(true, 8), (false, 6)] {
    ///     let clock = ManualClock::new();
    ///     let store = MemoryStore::builder().clock(clock.clone()).build()?;
    ///     let policy = Policy::gcra("tokens", "10/min");
    ///     let tokens = if keeps_account { policy.refunds() } else { policy }.on(&store)?;
    ///     tokens.check("ada").cost(4).now().expect("memory answers at once")?;
    ///     let mut decision = tokens.check("ada").cost(5).now().expect("memory answers at once")?;
    ///     clock.advance(Duration::from_secs(12));
    ///     let mut receipt = decision.take_receipt(0).expect("it was allowed");
    ///     tokens.refund("ada", 5).of(&mut receipt).now().expect("memory answers at once")?;
    ///     assert_eq!(tokens.peek("ada").now().expect("memory answers at once")?.remaining(), left);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refunds(mut self) -> Self {
        self.settings.gives_back = true;
        self
    }

    /// Counts refused requests too: a client that continues after a refusal stays refused until it has paused.
    ///
    /// A request that this policy or another limit refuses spends its cost from this policy in the same step, up to
    /// the [capacity](crate::Decision::capacity): the key is then as full as after a burst, and never deeper in debt. A
    /// sliding log keeps its newest units, so that it decides as if it listed every request. The other limits of the request
    /// spend nothing, and units spent by a refusal are not given back. `retry_after` is the wait after that.
    ///
    /// A [peek](crate::RateLimiter::peek) counts nothing. While the store is down, a refusal counts where it is decided, and
    /// is not charged later; if several instances each decide with a share, it spends
    /// nothing. Default: a refused request spends nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::builder().clock(clock.clone()).build()?;
    /// let login = Policy::sliding_log("login", "2/min").count_rejected().on(&store)?;
    /// let mut admitted = 0;
    /// for _ in 0..100 {
    ///     admitted += u32::from(login.check("ada").now().expect("memory answers at once")?.is_allowed());
    ///     clock.advance(Duration::from_secs(10));
    /// }
    /// assert_eq!(admitted, 2); // in a quarter of an hour: it never paused
    /// clock.advance(Duration::from_secs(60));
    /// assert!(login.check("ada").now().expect("memory answers at once")?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count_rejected(mut self) -> Self {
        self.settings.counts_rejected = true;
        self
    }

    /// Sets the highest debt that a [charge](crate::RateLimiter::charge) leaves, in units; at least the burst. Units above it are
    /// forgotten. Default: ten bursts or ten limits, whichever is more. A debt that the algorithm cannot count exactly is cut.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
    /// let pages = Policy::gcra("pages", "10/h").debt_up_to(20).on(&store)?;
    /// pages.charge("ada", 1_000).now().expect("memory answers at once")?;
    /// // 11 of the 20 units have to drain, at 6 minutes each, before one more fits into 10.
    /// let denied = pages.check("ada").now().expect("memory answers at once")?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(66 * 60)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn debt_up_to(mut self, units: u64) -> Self {
        self.settings.debt = Some(units);
        self
    }

    /// Sets how many keys of this policy can be in debt at once, on a store of fixed size: a [`MemoryStore`](crate::MemoryStore)
    /// makes a table of this size for each of its quotas. Default: the setting of the store's builder.
    ///
    /// This number determines the memory of the policy: [`MemoryStore`](crate::MemoryStore) lists the
    /// bytes per key. A key at rest takes no room, so plan for the clients of one period, not for all
    /// clients.
    pub fn table_size(mut self, keys: usize) -> Self {
        self.settings.keys = Some(keys);
        self
    }

    /// Sets the treatment of the least indebted key when a store of fixed size has no room for another one. Default:
    /// [`OnFull::Forget`]. [`OnFull::Inherit`] takes an eighth more memory for states of one word, a quarter for those of
    /// two; see [`MemoryStore`](crate::MemoryStore). A store without a fixed size ignores it.
    pub fn on_full(mut self, action: OnFull) -> Self {
        self.settings.on_full = action;
        self
    }

    /// Gives the policy a version, for deployments on a shared store: if instances disagree about the
    /// policy of this name, the highest version decides for all of them. Without versions, each instance decides by its own
    /// policy, and units spent under one policy count under all.
    ///
    /// A memory store ignores it; a Redis store counts to 2^53 and refuses higher ones. Raise it with each change of the policy, for instance
    /// by taking the time of the change.
    pub fn version(mut self, version: u64) -> Self {
        self.settings.version = Some(version);
        self
    }
}
