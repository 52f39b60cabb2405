//! Demands of an instance for permits, and the answers of the store: [`PermitDemand`], [`PermitGrant`].

use std::time::Duration;

use crate::key::Key;

/// The permits of a key that this instance holds and wants: what it tells the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitDemand {
    /// The key.
    pub key: Key,
    /// The permits that are out on this instance.
    pub in_use: u64,
    /// The permits that it wants, those in use among them.
    pub wanted: u64,
    /// The number of requests that go on waiting if there is no permit for them now.
    pub waiting: u64,
    /// The time for which its first request has waited.
    pub waited: Duration,
    pub(super) asked_at_us: u64,
}

/// The answer of the store to a [`PermitDemand`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitGrant {
    /// The permits that this instance holds from now on. If fewer than it has in use, the rest are lost to others.
    pub held: u64,
    /// The permits that are left for all instances.
    pub left: u64,
    /// The number of permits that requests of other instances have waited for longer than those of this one. As many that come back
    /// here go back to the store.
    pub owed: u64,
    /// The number of instances that hold permits of the key, this one among them; 0 if the store does not say so.
    pub instances: u64,
}

impl PermitGrant {
    /// An answer.
    pub fn new(held: u64, left: u64, owed: u64) -> Self {
        Self { held, left, owed, instances: 0 }
    }

    /// This grant, with the number of instances that hold permits of the key.
    #[must_use]
    pub fn by(self, instances: u64) -> Self {
        Self { instances, ..self }
    }
}

/// The keys that the store is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DemandsOf {
    /// The keys that have changed since they were told.
    Changed,
    /// These, and the keys for which requests wait.
    Waiting,
    /// All keys.
    All,
}
