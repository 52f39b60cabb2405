//! The share of a region, and the reserve that all regions have: [`Regions`].
//!
//! Every region has to know the same regions with the same weights, because each computes all parts and takes its own: two regions that
//! disagree would together admit more than the policy. They are kept in the order of their names, so the order of the settings does not
//! matter.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_core::key::KeyRef;
use sluicegate_core::{ConfigError, Key, Policy, Store};

use crate::divided::Divide;

/// The share of one region on its store, and the reserve on another store.
pub(super) struct Regions {
    /// The store of the region, and the store of the reserve.
    pub(super) stores: [Arc<dyn Store>; 2],
    /// The name of this region, by which it finds its own part.
    pub(super) region: String,
    /// The weights of all regions, in one order everywhere.
    pub(super) weights: BTreeMap<String, u32>,
    /// Hundredths of each quota that the regions share.
    pub(super) share: u32,
}

impl Divide for Regions {
    fn stores(&self) -> &[Arc<dyn Store>] {
        &self.stores
    }

    fn parts(&self, policy: &Policy, _: Option<bool>) -> Result<Option<Vec<Policy>>, ConfigError> {
        if policy.is_of_suspension() {
            return Ok(None);
        }
        let whole: u64 = self.weights.values().copied().map(u64::from).sum();
        let shares = self.weights.values().map(|weight| u64::from(self.share) * u64::from(*weight));
        let reserve = u64::from(100 - self.share) * whole;
        let parts = shares.chain([reserve]).map(|weight| (policy.name().to_owned(), weight));
        let mut parts = policy.split(parts)?;
        let reserve = parts.pop();
        let own = self.weights.keys().position(|name| *name == self.region);
        let own = own.map(|own| parts.swap_remove(own));
        Ok(Some(own.into_iter().chain(reserve).collect()))
    }

    fn store_of(&self, part: usize) -> usize {
        part
    }

    fn key(&self, key: KeyRef<'_>, _: usize) -> Key {
        key.to_key()
    }

    fn first(&self, _: usize) -> usize {
        0
    }

    fn is_in_order(&self) -> bool {
        true
    }

    /// The store with answers for all regions.
    fn shared(&self) -> &Arc<dyn Store> {
        &self.stores[1]
    }
}
