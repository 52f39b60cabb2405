//! A request for a permit, and what is known of it: [`PermitRequest`].

use crate::in_flight::{Acquire, Class, InFlight, NoPermit, Permit};
use crate::key::Key;

/// A request for a permit; made by [`InFlight::request`].
///
/// Class and weight count where the limit [adapts](InFlight::adaptive); to a fixed number for each key they make no difference.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until `acquire` or `try_acquire` is called"]
pub struct PermitRequest {
    in_flight: InFlight,
    key: Key,
    class: Class,
    weight: u64,
}

impl PermitRequest {
    pub(super) fn new(in_flight: InFlight, key: Key) -> Self {
        Self { in_flight, key, class: Class::default(), weight: 1 }
    }

    /// How much it matters. Default: [`Class::Critical`].
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// The part of its key, in proportion to those of others, where the limit is [shared by
    /// keys](crate::in_flight::AdaptiveBuilder::fair). The newest request of a key says it for all of them. Default: 1, which is the least.
    pub fn weight(mut self, weight: u64) -> Self {
        self.weight = weight;
        self
    }

    /// As [`InFlight::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(self) -> Result<Permit, NoPermit> {
        let Self { in_flight, key, class, weight } = self;
        in_flight.try_take(key, class, weight)
    }

    /// As [`InFlight::acquire`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub fn acquire(self) -> Acquire {
        let Self { in_flight, key, class, weight } = self;
        in_flight.enter(key, class, weight)
    }
}
