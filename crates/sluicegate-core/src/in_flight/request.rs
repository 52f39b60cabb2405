//! A request for a permit, with its class and weight: [`PermitRequest`].

use crate::in_flight::{Acquire, Class, InFlight, NoPermit, Permit};
use crate::key::Key;

/// A request for a permit; made by [`InFlight::request`].
///
/// Class and weight count if the limit [adapts](InFlight::adaptive); a limit of a fixed number for each key ignores them.
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

    /// Sets the importance of the request. Default: [`Class::Critical`].
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Sets the part of its key, in proportion to those of others, if the limit is [shared by
    /// keys](crate::in_flight::AdaptiveBuilder::fair). The newest request of a key sets it for all of them. Default: 1, which is the least.
    pub fn weight(mut self, weight: u64) -> Self {
        self.weight = weight;
        self
    }

    /// As [`InFlight::try_acquire`].
    ///
    /// # Errors
    /// As [`InFlight::try_acquire`].
    pub fn try_acquire(self) -> Result<Permit, NoPermit> {
        let Self { in_flight, key, class, weight } = self;
        in_flight.try_take(key, class, weight)
    }

    /// As [`InFlight::acquire`].
    ///
    /// # Errors
    /// As [`InFlight::acquire`].
    ///
    /// # Cancel safety
    /// As [`InFlight::acquire`].
    pub fn acquire(self) -> Acquire {
        let Self { in_flight, key, class, weight } = self;
        in_flight.enter(key, class, weight)
    }
}
