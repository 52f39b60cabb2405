//! When a key is refused outright, and for how long: [`Suspension`].

use std::time::Duration;

#[cfg(doc)]
use crate::policy::PolicyBuilder;

/// When a key is refused outright, and for how long: see [`PolicyBuilder::suspend`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suspension {
    /// None if the policy suspends no key by itself.
    pub(super) terms: Option<SuspensionTerms>,
    pub(super) reach: Reach,
    /// The name for suspensions, if it differs from the policy's.
    pub(super) name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SuspensionTerms {
    pub(super) after: u64,
    pub(super) within: Duration,
    pub(super) lasts: Duration,
    pub(super) up_to: Duration,
    pub(super) remembers: Duration,
}

impl SuspensionTerms {
    fn lasts(&self, before: u64) -> Duration {
        let times = u32::try_from(before).ok().and_then(|before| 1_u32.checked_shl(before));
        let longer = times.and_then(|times| self.lasts.checked_mul(times));
        longer.map_or(self.up_to, |longer| longer.min(self.up_to))
    }

    /// The most suspensions of a key that are remembered at a time: each is longer than the one before until the longest is reached, and
    /// then no more fit into the remembered time. A suspension that was ended by hand makes room for one more, which is
    /// not remembered.
    pub(super) fn most_suspensions(&self) -> u64 {
        let doublings = (0..32).find(|before| self.lasts(*before) == self.up_to).unwrap_or(32);
        if doublings == 0 {
            // Nothing depends on earlier suspensions then.
            return 1;
        }
        let longest = self.remembers.as_nanos().checked_div(self.up_to.as_nanos()).unwrap_or_default();
        u64::try_from(longest).unwrap_or(u64::MAX).saturating_add(doublings + 1)
    }
}

/// The policies that refuse a suspended key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Reach {
    /// This policy.
    #[default]
    Policy,
    /// All policies with this reach; keys that are addresses are suspended only by this policy.
    Everywhere,
    /// All policies with this reach.
    AddressesToo,
}

impl Suspension {
    /// The number of refusals that suspend a key, and the span in which they count; `None` if this policy suspends no key by itself.
    pub fn after(&self) -> Option<(u64, Duration)> {
        self.terms.map(|terms| (terms.after, terms.within))
    }

    /// The length of a suspension of a key with `before` [remembered](Self::remembers) suspensions: twice as long for each,
    /// up to [`PolicyBuilder::up_to`].
    pub fn lasts(&self, before: u64) -> Option<Duration> {
        self.terms.map(|terms| terms.lasts(before))
    }

    /// The time from its beginning for which a suspension makes the next one longer.
    pub fn remembers(&self) -> Option<Duration> {
        self.terms.map(|terms| terms.remembers)
    }

    /// Whether this policy and others refuse each other's suspended keys.
    pub fn is_everywhere(&self) -> bool {
        self.reach != Reach::Policy
    }

    /// Whether keys that are addresses are refused everywhere, too.
    pub fn holds_addresses_everywhere(&self) -> bool {
        self.reach == Reach::AddressesToo
    }

    /// The number of buckets that say whether a key is suspended.
    pub(in crate::policy) fn buckets(&self) -> usize {
        if self.is_everywhere() { 2 } else { 1 }
    }

    /// The name under which refusals are counted, if it differs from the policy's.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}
