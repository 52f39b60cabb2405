//! The leases of a store that the file names, which are given back at the end of the process: [`Leases`].

use std::fmt;
use std::time::Duration;

#[cfg(feature = "redis")]
use sluicegate_fleet::Leased;

/// Leases, if the store has any.
#[derive(Clone, Default)]
pub(crate) struct Leases {
    #[cfg(feature = "redis")]
    leased: Option<Leased>,
}

impl Leases {
    #[cfg(feature = "redis")]
    pub(crate) fn of(leased: Leased) -> Self {
        Self { leased: Some(leased) }
    }

    /// Gives the leases back, and returns the units that were not given back.
    #[cfg(feature = "redis")]
    pub(crate) async fn give_back(&self, within: Duration) -> u64 {
        let Some(leased) = &self.leased else { return 0 };
        leased.close(within).await.map_or_else(|unreturned| unreturned.units(), |()| 0)
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unused_async, reason = "with Redis, it waits for answers")]
    pub(crate) async fn give_back(&self, _: Duration) -> u64 {
        0
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").finish_non_exhaustive()
    }
}
