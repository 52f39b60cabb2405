//! The order of store wrappers: [`Place`].

use std::fmt;

use super::Store;
use crate::error::{ConfigError, ConfigErrorKind};

/// The place of a store wrapper among the others of this family, from inside out.
///
/// | wrong order | effect of the outer store |
/// |---|---|
/// | `Resilient` around `Leased` | take answers out of leases for answers of the store, and never open its breaker |
/// | `Leased` around `DenyCache` | wait for a refill that the cache refuses |
/// | any around itself | do its work twice |
///
/// So a wrapper goes only around those of lower places. A store without a place goes anywhere.
///
/// ```
/// use sluicegate_core::store::Place;
///
/// assert!(Place::DenyCache > Place::Leased && Place::Leased > Place::Resilient);
/// assert_eq!(Place::Shard.to_string(), "Sharded or Regional");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Divides quotas among several buckets or several stores: `Sharded`, `Regional`.
    Shard,
    /// Survives the outage of the inner store: `Resilient`.
    Resilient,
    /// Spends locally from batches of units: `Leased`.
    Leased,
    /// Refuses locally what the store has refused: `DenyCache`.
    DenyCache,
    /// Counts all decisions: `Observed`.
    Observed,
}

impl Place {
    /// All places, the innermost first.
    pub const ALL: [Self; 5] = [Self::Shard, Self::Resilient, Self::Leased, Self::DenyCache, Self::Observed];

    /// Checks that a wrapper of this place may go around that store. Call it when the wrapper is built. A
    /// [`Wrap`](crate::wrap::Wrap) with a place is checked again whenever a policy is opened.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] when the store has this place or a higher one.
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_resilient::Resilient;
    ///
    /// let resilient = Resilient::new(MemoryStore::new());
    /// let error = Resilient::builder(&resilient).build().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "Resilient is around a store that is Resilient already: the order, from outside in, is \
    ///      Observed, DenyCache, Leased, Resilient, Sharded or Regional"
    /// );
    /// ```
    pub fn around(self, store: &dyn Store) -> Result<(), ConfigError> {
        match store.place() {
            Some(within) if within >= self => {
                let order: Vec<_> = Self::ALL.iter().rev().map(Self::to_string).collect();
                let problem = format!(
                    "{self} is around a store that is {within} already: the order, from outside in, is {}",
                    order.join(", ")
                );
                Err(ConfigError::new(ConfigErrorKind::Store, problem))
            }
            _ => Ok(()),
        }
    }
}

/// The names of the stores of this place.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shard => "Sharded or Regional",
            Self::Resilient => "Resilient",
            Self::Leased => "Leased",
            Self::DenyCache => "DenyCache",
            Self::Observed => "Observed",
        })
    }
}
