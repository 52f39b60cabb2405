//! A request for a permit, with its class and weight: [`PermitRequest`].

use sluicegate_core::key::Key;

use crate::{Acquire, Class, InFlight, NoPermit, NoPermitKind, Permit};

/// A request for a permit; made by [`InFlight::request`].
///
/// Class and weight count if the limit [adapts](InFlight::adaptive); a limit with a fixed number for each key ignores them.
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

    /// The limit that the request asks.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Sets the importance of the request. Default: [`Class::Critical`].
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Sets the share of its key in proportion to the shares of others, if the limit is [shared by
    /// keys](crate::AdaptiveBuilder::fair). The newest request of a key sets it for all of them. Default: 1, which is the least.
    pub fn weight(mut self, weight: u64) -> Self {
        self.weight = weight;
        self
    }

    /// As [`InFlight::try_acquire`].
    ///
    /// # Errors
    /// As [`InFlight::try_acquire`].
    pub fn try_acquire(self) -> Result<Permit, NoPermit> {
        let in_flight = self.in_flight.clone();
        // A request that does not wait is answered at once, unless a store has to be asked.
        self.attempt().now().unwrap_or_else(|_| Err(in_flight.none(NoPermitKind::Shared)))
    }

    /// Takes a permit if one is free and no request waits for it. It waits only for the answer of the store on which instances
    /// [share](crate::InFlightBuilder::on) the permits; for permits of one process it is ready at once, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// The future gives [`NoPermitKind::Permits`](crate::NoPermitKind::Permits) when all permits of the key are in use, and
    /// [`NoPermitKind::Outage`](crate::NoPermitKind::Outage) when the store gives no answer and the limit then refuses.
    ///
    /// # Cancel safety
    /// As [`InFlight::acquire`].
    pub fn attempt(self) -> Acquire {
        self.enter(false)
    }

    /// As [`InFlight::acquire`].
    ///
    /// # Errors
    /// As [`InFlight::acquire`].
    ///
    /// # Cancel safety
    /// As [`InFlight::acquire`].
    pub fn acquire(self) -> Acquire {
        self.enter(true)
    }

    fn enter(self, waits: bool) -> Acquire {
        let Self { in_flight, key, class, weight } = self;
        in_flight.enter(key, (class, weight), waits)
    }
}
