//! Puts a [`Policy`] together ([`PolicyBuilder`]) from its quotas and its settings ([`PolicySettings`]), or reports their mistakes.

use std::time::Duration;

use super::suspension::{Suspension, SuspensionDraft, check_ending, is_of_suspension};
use super::tightening::TighteningDraft;
use super::{
    MAX_QUOTAS, OnExceeded, OnFull, OnOutage, Policy, PolicyMode, PolicyQuota, Tightening, check_name,
};
use crate::algorithm::{Algorithm, Anchor, Drain, Refill, Rule};
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

    /// The treatment of a request that exceeds it.
    pub fn on_exceeded(&self) -> OnExceeded {
        self.settings.on_exceeded
    }

    /// The treatment of a request while the store cannot be reached.
    pub fn on_outage(&self) -> OnOutage {
        self.settings.on_outage
    }

    /// Whether it is enforced, only tried out, or off.
    pub fn mode(&self) -> PolicyMode {
        self.settings.mode
    }

    /// Whether it is hidden from clients: enforced, but not in header fields or bodies.
    pub fn is_hidden(&self) -> bool {
        self.settings.is_hidden
    }

    /// The name that it is counted under: its own, or that of [all of its kind](super::PolicyBuilder::counted_as).
    pub fn counted_as(&self) -> &str {
        self.settings.counted_as.as_deref().unwrap_or(&self.name)
    }

    /// Whether the store keeps account of refunds, so that they are exact.
    pub fn gives_back(&self) -> bool {
        self.settings.gives_back
    }

    /// Whether refused requests spend from it; see [`count_rejected`](super::PolicyBuilder::count_rejected).
    pub fn counts_rejected(&self) -> bool {
        self.settings.counts_rejected
    }

    /// The number of keys that a store of fixed size makes room for, if this policy sets it.
    pub fn table_size(&self) -> Option<usize> {
        self.settings.keys
    }

    /// The treatment of the least indebted key of a store of fixed size that is full.
    pub fn on_full(&self) -> OnFull {
        self.settings.on_full
    }

    /// Its version, if it has one: on a store that several instances share, the highest decides.
    pub fn version(&self) -> Option<u64> {
        self.settings.version
    }

    /// The quota that it has while its requests are unusual, if it is set.
    pub fn tightening(&self) -> Option<Tightening> {
        self.settings.tightening
    }

    /// Whether keys may bring [quotas of their own](crate::RateLimiter::with_quotas); then a store keeps with each key
    /// the quotas that it was counted by.
    #[doc(hidden)]
    pub fn takes_quotas(&self) -> bool {
        self.settings.takes_quotas
    }

    /// This policy in another mode: for [`RateLimiter::replace`](crate::RateLimiter::replace), under which keys stay as
    /// they are.
    #[must_use]
    pub fn in_mode(&self, mode: PolicyMode) -> Self {
        self.set(|settings| settings.mode = mode)
    }

    /// This policy, keeping account of refunds; see [`refunds`](super::PolicyBuilder::refunds).
    #[must_use]
    #[doc(hidden)]
    pub fn with_refunds(&self) -> Self {
        self.set(|settings| settings.gives_back = true)
    }

    /// This policy with room for another number of keys, on a store of fixed size; see
    /// [`table_size`](super::PolicyBuilder::table_size). At least one, at most 2^31.
    ///
    /// ```
    /// use sluicegate_core::Policy;
    ///
    /// // A small table is enough to test that the policy can be opened.
    /// let api = Policy::gcra("api", "100/min").table_size(100_000_000).build()?;
    /// assert_eq!(api.with_table_size(1).table_size(), Some(1));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    #[must_use]
    #[doc(hidden)]
    pub fn with_table_size(&self, keys: usize) -> Self {
        self.set(|settings| settings.keys = Some(keys.clamp(1, MOST_KEYS)))
    }

    /// The policy with room for the quotas of keys; see [`takes_quotas`](Self::takes_quotas).
    #[must_use]
    #[doc(hidden)]
    pub fn taking_quotas(&self) -> Self {
        self.set(|settings| settings.takes_quotas = true)
    }

    /// Whether both decide alike, whatever they remember for refunds and the quotas of keys.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let whole = |policy: &Self| policy.with_refunds().taking_quotas();
        self == other || whole(self) == whole(other)
    }

    /// The policy with the additional memory of an open one, for refunds and the quotas of keys.
    #[cfg(feature = "limiter")]
    pub(crate) fn remembering_as(&self, open: &Self) -> Self {
        self.set(|settings| {
            settings.gives_back |= open.settings.gives_back;
            settings.takes_quotas |= open.settings.takes_quotas;
        })
    }

    /// The policy with changed settings.
    fn set(&self, change: impl FnOnce(&mut PolicySettings)) -> Self {
        let mut policy = self.clone();
        change(&mut policy.settings);
        policy
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

    /// Only tries the policy out: short for [`PolicyMode::Shadow`].
    pub fn shadow(self) -> Self {
        self.mode(PolicyMode::Shadow)
    }
}

crate::setters! { PolicyBuilder
    /// Sets the treatment of a request while the store cannot be reached. Default: [`OnOutage::Local`].
    pub fn on_outage(it, action: OnOutage) { it.settings.on_outage = action }

    /// Sets whether the policy is enforced, only tried out, or off. Default: [`PolicyMode::Enforce`].
    pub fn mode(it, mode: PolicyMode) { it.settings.mode = mode }

    /// Hides the policy from clients: it is enforced, but its name and numbers appear neither in header fields nor in
    /// bodies. Use it for limits that would reveal the traffic of other clients, such as one bucket for all of them.
    pub fn hidden(it) { it.settings.is_hidden = true }

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
    pub fn counted_as(it, name: impl Into<String>) { it.settings.counted_as = Some(name.into()) }

    /// Keeps account of refunds, so that a refund [of a receipt](crate::limiter::Change::of) gives back all units that have not
    /// drained, however full the bucket was: for budgets that are estimated and settled. A key takes 64 bytes of
    /// memory then. Without it, all units that have drained since count against the refund, and nothing comes back if keys bring
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
    pub fn refunds(it) { it.settings.gives_back = true }

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
    pub fn count_rejected(it) { it.settings.counts_rejected = true }

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
    pub fn debt_up_to(it, units: u64) { it.settings.debt = Some(units) }

    /// Sets how many keys of this policy can be in debt at once, on a store of fixed size: a [`MemoryStore`](crate::MemoryStore)
    /// makes a table of this size for each of its quotas. Default: the setting of the store's builder.
    ///
    /// This number determines the memory of the policy: [`MemoryStore`](crate::MemoryStore) lists the
    /// bytes per key. A key at rest takes no room, so plan for the clients of one period, not for all
    /// clients.
    pub fn table_size(it, keys: usize) { it.settings.keys = Some(keys) }

    /// Sets the treatment of the least indebted key when a store of fixed size has no room for another one. Default:
    /// [`OnFull::Forget`]. [`OnFull::Inherit`] takes an eighth more memory for states of one word, a quarter for those of
    /// two, a fifth with refunds or quotas of keys; see [`MemoryStore`](crate::MemoryStore). A store without a fixed size ignores it.
    pub fn on_full(it, action: OnFull) { it.settings.on_full = action }

    /// Gives the policy a version, for deployments on a shared store: if instances disagree about the
    /// policy of this name, the highest version decides for all of them. Without versions, each instance decides by its own
    /// policy, and units spent under one policy count under all.
    ///
    /// A memory store ignores it; a Redis store counts to 2^53 and refuses higher ones. Raise it with each change of the policy, for instance
    /// by taking the time of the change.
    pub fn version(it, version: u64) { it.settings.version = Some(version) }
}

impl PolicyBuilder {
    /// Checks the parts and puts them together.
    ///
    /// # Errors
    /// A name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}` or with an ending reserved for [suspensions](Self::suspend), an impossible
    /// suspension, more than 16 quotas, room for 0 keys or more than 2^31, two quotas with one label in headers,
    /// and everything that [`Rule::new`] refuses. The message names the value and what would be accepted.
    pub fn build(self) -> Result<Policy, ConfigError> {
        check_name("policy name", &self.name)?;
        check_ending(&self.name)?;
        if let Some(counted_as) = &self.settings.counted_as {
            check_name("name that a policy is counted as", counted_as)
                .map_err(|error| error.in_policy(&self.name))?;
        }
        self.assembled()
    }

    /// [`build`](Self::build) without the check of the name.
    pub(super) fn assembled(self) -> Result<Policy, ConfigError> {
        self.with_tightening()?.put_together()
    }

    /// [`assembled`](Self::assembled) of parts whose tightening is checked.
    pub(super) fn put_together(mut self) -> Result<Policy, ConfigError> {
        let is_of_suspension = is_of_suspension(&self.name);
        let suspension = self.suspension.take().map(|draft| draft.build(&self.name));
        let suspension = suspension.transpose().map_err(|error| error.in_policy(&self.name))?;
        let room = MAX_QUOTAS - suspension.as_ref().map_or(0, Suspension::buckets);
        if (room + 1..=MAX_QUOTAS).contains(&self.quotas.len()) {
            let problem = format!(
                "a policy of {} quotas leaves no room for its suspension: use {room} quotas at most",
                self.quotas.len()
            );
            return Err(self.error(ConfigErrorKind::TooManyQuotas, problem).in_quota(MAX_QUOTAS - 1));
        }
        if self.quotas.is_empty() {
            let problem = "a policy without a quota: give it one, as 5/min".to_owned();
            return Err(self.error(ConfigErrorKind::Policy, problem));
        }
        if self.quotas.len() > MAX_QUOTAS {
            let problem = format!("a policy of {} quotas: at most {MAX_QUOTAS} fit", self.quotas.len());
            return Err(self.error(ConfigErrorKind::TooManyQuotas, problem).in_quota(MAX_QUOTAS));
        }
        let algorithm_of = |quota: &Result<Quota, ConfigError>| {
            quota.as_ref().ok().and_then(Quota::algorithm).unwrap_or(self.algorithm)
        };
        let queue = self.quotas.iter().position(|(_, quota)| algorithm_of(quota).is_queue());
        if let Some(queue) = queue.filter(|_| self.quotas.len() > 1) {
            let problem = "a queue has one quota, because it spaces its output in one way: put the others into policies of their own";
            return Err(self
                .error(ConfigErrorKind::QueueOfSeveral, problem.to_owned())
                .in_quota(queue.max(1)));
        }
        if let Some(keys) = self.settings.keys.filter(|keys| !(1..=MOST_KEYS).contains(keys)) {
            let problem = format!("it cannot have room for {keys} keys: use 1 to {MOST_KEYS}");
            return Err(self.error(ConfigErrorKind::Policy, problem));
        }
        let mut quotas: Vec<PolicyQuota> = Vec::with_capacity(self.quotas.len());
        let single = self.quotas.len() == 1;
        // The policy takes the algorithm of its first quota, and other quotas name theirs only if it differs, however
        // they were written: so policies that decide alike are equal.
        let first = algorithm_of(&self.quotas[0].1);
        for (index, (id, quota)) in self.quotas.iter().enumerate() {
            let here = |error: ConfigError| error.in_policy(&self.name).in_quota(index);
            let algorithm = algorithm_of(quota);
            let quota = quota.clone().map_err(here)?;
            let quota = quota.with_algorithm(Some(algorithm).filter(|own| *own != first));
            let rule = Rule::new(algorithm, quota).map_err(here)?;
            if rule.begins() && self.settings.on_full == OnFull::Inherit {
                let problem = format!(
                    "{quota} starts a key that is not known with less than its burst, so none can inherit what another owes: use `on_full` forget, or leave the start out"
                );
                return Err(here(ConfigError::new(ConfigErrorKind::Policy, problem)));
            }
            let rule = self.settings.debt.map_or(rule, |units| rule.with_debt(units));
            let rule = if self.settings.is_part { rule.rounding_up() } else { rule };
            let label = match id {
                Some(id) => {
                    check_name("quota id", id).map_err(here)?;
                    format!("{}.{id}", self.name)
                }
                None if single => self.name.clone(),
                None => format!("{}.{}", self.name, period_label(quota)),
            };
            if quotas.iter().any(|other| other.label == label) {
                let problem = format!(
                    "two of its quotas are called {label:?} in headers: give one a name of its own with `named`"
                );
                return Err(here(ConfigError::new(ConfigErrorKind::SameLabel, problem)));
            }
            quotas.push(PolicyQuota { quota, algorithm, rule, id: id.clone(), label });
        }
        if let OnOutage::Quota(quota) = self.settings.on_outage {
            Self { algorithm: first, ..self.clone() }.alone(quota)?;
        }
        Ok(Policy {
            name: self.name,
            algorithm: first,
            quotas,
            settings: self.settings,
            suspension,
            is_of_suspension,
        })
    }

    /// This policy with only one quota, by which a process decides in an outage.
    pub(super) fn alone(self, quota: Quota) -> Result<Policy, ConfigError> {
        let settings = PolicySettings { on_outage: OnOutage::Local, tightening: None, ..self.settings };
        let alone = Self { quotas: vec![(None, Ok(quota))], settings, suspension: None, ..self };
        let name = alone.name.clone();
        alone.assembled().map_err(|error| {
            let problem = format!("in an outage, by {quota}: {}", error.problem());
            ConfigError::new(error.kind(), problem).in_policy(&name)
        })
    }

    fn error(&self, kind: ConfigErrorKind, problem: String) -> ConfigError {
        ConfigError::new(kind, problem).in_policy(&self.name)
    }
}

/// The most keys that a table can be made for.
pub(crate) const MOST_KEYS: usize = 1 << 31;

/// `5/30s` is called `30s`, `100/min` `1min`, `1000/month in Asia/Seoul` `1month`.
fn period_label(quota: Quota) -> String {
    if let Some(period) = quota.calendar() {
        return format!("1{}", period.to_string().split(' ').next().unwrap_or_default());
    }
    let text = Quota::new(1, quota.period()).to_string();
    let period = text.trim_start_matches("1/");
    if period.starts_with(|c: char| c.is_ascii_digit()) { period.to_owned() } else { format!("1{period}") }
}

/// The settings of a policy besides its name, algorithm, quotas and suspension, shared by the builder and the
/// policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PolicySettings {
    pub(super) on_exceeded: OnExceeded,
    pub(super) on_outage: OnOutage,
    pub(super) mode: PolicyMode,
    pub(super) is_hidden: bool,
    /// The name in metrics; by default the policy's own.
    pub(super) counted_as: Option<String>,
    pub(super) gives_back: bool,
    /// Whether keys may bring quotas of their own.
    pub(super) takes_quotas: bool,
    pub(super) counts_rejected: bool,
    pub(super) version: Option<u64>,
    /// The highest debt in units; by default the rule's.
    pub(super) debt: Option<u64>,
    /// The number of keys that a store of fixed size makes room for; by default the store's setting.
    pub(super) keys: Option<usize>,
    pub(super) on_full: OnFull,
    pub(super) tightening: Option<Tightening>,
    /// Whether it is one of the parts of a split policy, which together count no less than the whole.
    pub(super) is_part: bool,
}

/// No type implements it, because a policy has no key.
#[diagnostic::on_unimplemented(
    message = "a policy has no key",
    label = "whose bucket a request spends from is said by a limit",
    note = "put the policy on a store, and give the key to its limit: `Limit::new(Policy::gcra(\"api\", \"5/min\").on(&store)?).key(..)`",
    note = "without HTTP each call names its key: `limiter.check(\"ada\")`"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait KeyOfPolicy {}

/// No type implements it, because a quota alone does not name its algorithm.
#[diagnostic::on_unimplemented(
    message = "a policy is made by the name of its algorithm",
    label = "by which algorithm is this counted?",
    note = "write `Policy::gcra(\"api\", \"5/min\")` where any will do, or `sliding_log`, `sliding_counter`, `fixed_window`, `token_bucket`, `leaky_bucket`, `leaky_queue`",
    note = "where it is chosen at run time: `Policy::builder(\"api\", algorithm, \"5/min\")`"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait QuotaOfNoAlgorithm {
    fn never(self) -> PolicyBuilder;
}

impl PolicyBuilder {
    /// Never compiles: the key belongs to a limit.
    #[doc(hidden)]
    pub fn key(self, _: impl KeyOfPolicy) -> Self {
        self
    }
}

impl Policy {
    /// Never compiles: each algorithm has a constructor.
    #[doc(hidden)]
    #[expect(clippy::new_ret_no_self, reason = "all constructors make a builder")]
    pub fn new(_: impl Into<String>, quota: impl QuotaOfNoAlgorithm) -> PolicyBuilder {
        quota.never()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_one_policy_are_told_apart() {
        let policy = Policy::gcra("payment", "5/min").and("2/10s").and("100/d").named("day").build().unwrap();
        let labels: Vec<_> = policy.quotas().iter().map(PolicyQuota::label).collect();
        assert_eq!(labels, ["payment.1min", "payment.10s", "payment.day"]);
        assert_eq!(policy.to_string(), "payment: 5/min, 2/10s, 100/d (gcra)");
        let twins = Policy::gcra("payment", "5/min").and("7/60s").build().unwrap_err().to_string();
        assert!(twins.contains("\"payment.1min\"") && twins.contains("named"), "{twins}");
    }

    #[test]
    fn a_bad_name_or_quota_is_named() {
        for name in ["", "Ü", "a b", "Log in", "-x", &"x".repeat(65)] {
            let message = Policy::gcra(name, "5/min").build().unwrap_err().to_string();
            assert!(message.contains("cannot be a policy name"), "{message}");
        }
        let message = Policy::gcra("login", "five/min").build().unwrap_err().to_string();
        assert!(message.starts_with("policy \"login\": \"five/min\" is not a quota"), "{message}");
    }
}
