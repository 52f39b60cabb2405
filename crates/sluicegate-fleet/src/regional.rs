//! One limit over several regions: [`Regional`] gives each region a share of every quota on a store of its own, and all of them a
//! reserve on another store.
//!
//! A call to a Redis on another continent takes a tenth of a second. With 60 % of each quota divided among the regions, most requests are
//! decided in their region; a request that exceeds the region's share takes from the reserve, while there is any.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_fleet::Regional;
//!
//! # let (redis_of_eu, redis_of_all) = (MemoryStore::new(), MemoryStore::new());
//! let store = Regional::builder("eu", redis_of_eu, redis_of_all)
//!     .region("eu", 2)
//!     .region("us", 1)
//!     .build()?;
//! let api = Policy::gcra("api", "100/h").on(&store)?;
//!
//! let check = |cost| api.check("ada").cost(cost).now().expect("memory answers at once");
//! assert!(check(40)?.is_allowed()); // two thirds of 60 %, the region's own share
//! assert!(check(40)?.is_allowed()); // all of the reserve
//! let refused = check(1)?;
//! assert_eq!((refused.capacity(), refused.remaining()), (80, 0)); // 20 are kept for the other region
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! If a limit may hold per region, use a separate store per region. If all of a limit has to be usable from any
//! region, use one store for all of them, at the cost of the distance.
//!
//! # How a request is decided
//! The region's store is asked for the whole cost. If it refuses, both stores are peeked at, and the request goes to the reserve if that has room
//! for all of it: a cost is spent in one place, so one above the region's share and the reserve is impossible. Both belong to one policy of one
//! name, so a decision has one status per quota: the capacity and the remaining units that this region may use, its share and the reserve.
//!
//! A request with several limits may need both stores. It spends on the region's store first; these units are given back, by their receipt, when
//! the reserve refuses or gives no answer. In between, for the length of one call, these units are held but unused: then too few are
//! admitted, never too many. The same holds for an instance that dies between the two.
//!
//! A request that waits for its turn waits in one of the two. A request with several limits does not wait if one of them needs the reserve.
//!
//! # What it admits
//! | | at most | at least |
//! |---|---|---|
//! | all regions together, any span | the bound in the table of the algorithm, for the whole policy | |
//! | one region | its share and the reserve | as much, while the others leave the reserve alone |
//! | sliding counters | | up to one unit less per part, while the window before fades |
//! | an unreachable store of a region | the policy's bound for an outage, for the share of this region | |
//! | an unreachable reserve | the policy's bound for an outage, for the reserve | the share of each region |
//!
//! # Outages
//! Each of the two stores answers for itself. Put a `Resilient` store around each of them, so that the policy's
//! [`OnOutage`](sluicegate_core::OnOutage) covers each by itself: [`Local`](sluicegate_core::OnOutage::Local) then lets the instances of a
//! region divide the region's share, with as many `replicas` as the region has instances, and all instances of all regions
//! the reserve, with as many as there are together. With bare stores, a request that needs the unreachable store has no answer,
//! and its policy decides: a request within the region's share does not need the reserve.
//!
//! # Changes
//! All regions have to agree on the regions, their weights and the share. The store of the reserve carries overrides, so they hold in all
//! regions. A suspension is kept on the store of the region in which it began.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::key::KeyRef;
use sluicegate_core::store::{IntoStore, Place};
use sluicegate_core::{ConfigError, Key, Policy, Store};

use crate::divided::{Divide, Divided};

/// The store of a region, which has a share of each quota for itself, and a reserve beside the other regions; see the
/// [module](self).
///
/// Clones are cheap and share one store.
///
/// # Cancel safety
/// The runtime in which a decision was requested finishes it, even if its future is dropped.
#[derive(Clone)]
pub struct Regional(Arc<Divided<Regions>>);

impl Regional {
    /// Starts building the store of this region. Only its own instances reach `own`; the instances of all regions reach `reserve`.
    pub fn builder(
        region: impl Into<String>,
        own: impl IntoStore,
        reserve: impl IntoStore,
    ) -> RegionalBuilder {
        let (region, stores) = (region.into(), [own.into(), reserve.into()]);
        RegionalBuilder { region, stores, weights: Vec::new(), share: 60 }
    }
}

sluicegate_core::debug_as!(Regional {});

sluicegate_core::store_handle!(Regional);

/// Collects the regions; the settings must be equal in all regions.
///
/// | setting | default | too low | too high |
/// |---|---|---|---|
/// | [`region`](Self::region) | none: name all of them | | |
/// | [`share`](Self::share) | 60 | requests wait for the reserve | a region with more traffic than its weight is refused early |
#[must_use = "a builder does nothing until `build` is called"]
pub struct RegionalBuilder {
    region: String,
    stores: [Arc<dyn Store>; 2],
    weights: Vec<(String, u32)>,
    share: u32,
}

impl RegionalBuilder {
    /// Adds a region with its weight, at least 1: a region of weight 2 has twice the share of one of weight 1. Name all regions, including
    /// this one, in any order.
    pub fn region(mut self, name: impl Into<String>, weight: u32) -> Self {
        self.weights.push((name.into(), weight));
        self
    }

    /// Sets the hundredths of each quota that the regions share, 1 to 99; the rest is the reserve. Default: 60.
    pub fn share(mut self, hundredths: u32) -> Self {
        self.share = hundredths;
        self
    }

    /// Checks the settings and makes the store.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_fleet::Regional;
    ///
    /// let of = |region: &str| Regional::builder(region, MemoryStore::new(), MemoryStore::new());
    /// let error = of("eu").region("us", 1).build().unwrap_err();
    /// assert!(error.to_string().contains("\"eu\" is none of the regions (\"us\")"), "{error}");
    ///
    /// // Each region has at least one unit of each quota.
    /// let store = of("eu").region("eu", 1).region("us", 99).build()?;
    /// assert!(Policy::gcra("api", "100/min").on(&store).is_err());
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] when this region is not named, when a region is named twice or has no weight, for a share
    /// outside of 1 to 99, and around a store with a [place](Place) other than `Resilient`'s or none.
    pub fn build(self) -> Result<Regional, ConfigError> {
        let Self { region, stores, weights, share } = self;
        let refused = |problem| Err(ConfigError::new(ConfigErrorKind::Store, problem));
        if !(1..=99).contains(&share) {
            return refused(format!(
                "the regions cannot share {share} hundredths of each quota: use 1 to 99"
            ));
        }
        for store in stores.iter().filter(|store| store.place() != Some(Place::Resilient)) {
            Place::Shard.around(&**store)?;
        }
        let mut all = BTreeMap::new();
        for (name, weight) in weights {
            if weight == 0 {
                return refused(format!("the region {name:?} has the weight 0: use at least 1"));
            }
            if all.insert(name.clone(), weight).is_some() {
                return refused(format!("the region {name:?} is there twice: name each of them once"));
            }
        }
        if !all.contains_key(&region) {
            let names: Vec<String> = all.keys().map(|name| format!("{name:?}")).collect();
            let names = names.join(", ");
            return refused(format!("{region:?} is none of the regions ({names}): name it with `region`"));
        }
        Ok(Regional(Arc::new(Divided::new(Regions { stores, region, weights: all, share }))))
    }
}

sluicegate_core::debug_as!(RegionalBuilder { region, weights, share });

/// The share of one region on its store, and the reserve on another store.
///
/// Every region has to know the same regions with the same weights, because each computes all parts and takes its own: two regions that
/// disagree would together admit more than the policy. They are kept in the order of their names, so the order of the settings does not
/// matter.
struct Regions {
    /// The store of the region, and the store of the reserve.
    stores: [Arc<dyn Store>; 2],
    /// The name of this region, by which it finds its own part.
    region: String,
    /// The weights of all regions, in one order everywhere.
    weights: BTreeMap<String, u32>,
    /// Hundredths of each quota that the regions share.
    share: u32,
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
