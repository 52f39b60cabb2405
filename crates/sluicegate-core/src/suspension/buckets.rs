//! The buckets of a suspension, in addition to those of its policy.

use std::sync::Arc;
use std::time::Duration;

use crate::error::ConfigError;
use crate::key::KeyRef;
use crate::policy::Policy;
use crate::store::{Ask, DecisionFuture, Inherit, PreparedPolicy, Store, SuspensionBuckets};
use crate::support::ceil_millis;

/// Asks a store, and reads its answer.
pub(crate) type AskStore = fn(&dyn Store, &[Ask<'_>]) -> DecisionFuture;

/// Opens a policy and the buckets of its suspension. The suspensions stay, however the keys of a replaced policy start.
pub(crate) fn open(
    store: &dyn Store,
    policy: Policy,
    replaces: Option<(&PreparedPolicy, Inherit)>,
) -> Result<PreparedPolicy, ConfigError> {
    let prepared = store.open(Arc::new(policy), replaces)?.with_fallback_of(store);
    let policy = prepared.policy();
    if policy.suspension().is_none() {
        return Ok(prepared.with_short_way_of(store));
    }
    let old: Vec<&PreparedPolicy> = replaces.map_or_else(Vec::new, |(old, _)| buckets(old).collect());
    let follow = |bucket: Policy| -> Result<PreparedPolicy, ConfigError> {
        let old = old.iter().copied().find(|old| old.policy().name() == bucket.name());
        match old {
            Some(old) if **old.policy() == bucket => Ok(old.clone()),
            old => {
                let replaces = old.map(|old| (old, Inherit::Spent));
                Ok(store.open(Arc::new(bucket), replaces)?.with_short_way_of(store))
            }
        }
    };
    let buckets = SuspensionBuckets {
        strikes: match policy.strikes()? {
            Some([strikes, suspensions]) => Some([follow(strikes)?, follow(suspensions)?]),
            None => None,
        },
        suspended: follow(policy.suspended()?)?,
        everywhere: policy.suspended_everywhere()?.map(follow).transpose()?,
    };
    Ok(prepared.with_suspension(buckets).with_short_way_of(store))
}

/// Tells the store that a policy has replaced another one, and likewise for those of its buckets that differ.
pub(crate) fn replaced(store: &dyn Store, old: &PreparedPolicy, new: &PreparedPolicy, inherit: Inherit) {
    store.replaced(old, new, inherit);
    for new in buckets(new) {
        let old = buckets(old).find(|old| old.policy().name() == new.policy().name());
        if let Some(old) = old.filter(|old| !old.is(new)) {
            store.replaced(old, new, Inherit::Spent);
        }
    }
}

/// The buckets that say whether a key is suspended under this policy; the first one takes new suspensions. A policy that
/// suspends everywhere has both, because it may have suspended keys before it had that setting.
pub(super) fn buckets_of<'a>(
    policy: &'a PreparedPolicy,
    key: KeyRef<'_>,
) -> impl Iterator<Item = &'a PreparedPolicy> + use<'a> {
    let with_addresses =
        policy.policy().suspension().is_some_and(|suspension| suspension.holds_addresses_everywhere());
    let is_everywhere = with_addresses || key.address().is_none();
    policy.suspension().into_iter().flat_map(move |buckets| {
        let SuspensionBuckets { suspended, everywhere, .. } = &**buckets;
        everywhere.iter().filter(move |_| is_everywhere).chain([suspended])
    })
}

/// A time in the unit of a suspension's bucket: milliseconds, rounded up.
pub(super) fn units(lasts: Duration) -> u64 {
    ceil_millis(lasts)
}

/// All buckets of a policy's suspension.
fn buckets(policy: &PreparedPolicy) -> impl Iterator<Item = &PreparedPolicy> {
    policy.suspension().into_iter().flat_map(|buckets| {
        let strikes = buckets.strikes.iter().flatten();
        strikes.chain([&buckets.suspended]).chain(&buckets.everywhere)
    })
}
