//! The settings of a policy besides its quotas: [`PolicySettings`], and their getters on [`Policy`].

use super::options::{OnExceeded, OnFull, OnOutage, PolicyMode};
use super::{MOST_KEYS, Policy, Tightening};

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

impl Policy {
    /// The treatment of a request that exceeds it.
    pub fn on_exceeded(&self) -> OnExceeded {
        self.settings.on_exceeded
    }

    /// The treatment of a request while the store cannot be reached.
    pub fn on_outage(&self) -> OnOutage {
        self.settings.on_outage
    }

    /// Whether it is enforced, only tried out, or off.
    #[inline]
    pub fn mode(&self) -> PolicyMode {
        self.settings.mode
    }

    /// Whether it is hidden from clients: enforced, but not in header fields or bodies.
    pub fn is_hidden(&self) -> bool {
        self.settings.is_hidden
    }

    /// The name that it is counted under: its own, or that of [all of its kind](crate::policy::PolicyBuilder::counted_as).
    pub fn counted_as(&self) -> &str {
        self.settings.counted_as.as_deref().unwrap_or(&self.name)
    }

    /// Whether the store keeps account of refunds, so that they are exact.
    #[inline]
    pub fn gives_back(&self) -> bool {
        self.settings.gives_back
    }

    /// Whether refused requests spend from it; see [`count_rejected`](crate::policy::PolicyBuilder::count_rejected).
    #[inline]
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
    #[inline]
    pub fn takes_quotas(&self) -> bool {
        self.settings.takes_quotas
    }

    /// This policy in another mode: for [`RateLimiter::replace`](crate::RateLimiter::replace), under which keys stay as
    /// they are.
    #[must_use]
    pub fn in_mode(&self, mode: PolicyMode) -> Self {
        self.set(|settings| settings.mode = mode)
    }

    /// This policy, keeping account of refunds; see [`refunds`](crate::policy::PolicyBuilder::refunds).
    #[must_use]
    pub fn with_refunds(&self) -> Self {
        self.set(|settings| settings.gives_back = true)
    }

    /// This policy with room for another number of keys, on a store of fixed size; see
    /// [`table_size`](crate::policy::PolicyBuilder::table_size). At least one, at most 2^31.
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
    pub fn with_table_size(&self, keys: usize) -> Self {
        self.set(|settings| settings.keys = Some(keys.clamp(1, MOST_KEYS)))
    }

    /// The policy with room for the quotas of keys; see [`takes_quotas`](Self::takes_quotas).
    #[must_use]
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
