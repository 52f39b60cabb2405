//! How a store is doing: [`StoreStatus`].

use crate::memory::MemoryStats;
#[cfg(feature = "resilient")]
use crate::resilient::ResilientStatus;

/// How a store and those within it are doing, as far as they say: each adds what it knows. See
/// [`Store::status`](crate::Store::status).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// The name under which the store is observed, if it is.
    pub observed: Option<String>,
    /// How its breaker and its fallback are doing, if it has them.
    #[cfg(feature = "resilient")]
    #[cfg_attr(docsrs, doc(cfg(feature = "resilient")))]
    pub resilient: Option<ResilientStatus>,
    /// How full its table in memory is, or that of its fallback, if it has one.
    pub memory: Option<MemoryStats>,
}
