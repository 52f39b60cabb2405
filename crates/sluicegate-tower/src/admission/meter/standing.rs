//! The answer to a charge or a refund: [`Standing`].

use crate::respond::decided::Decided;

/// The state of a request's keys after its [`Meter`](crate::Meter) has charged or given back units.
///
/// ```
/// use sluicegate_tower::Meter;
///
/// /// Whether one more message may be read: each costs a unit of the connection's limits.
/// async fn goes_on(meter: &Meter) -> Result<bool, sluicegate_core::StoreError> {
///     Ok(!meter.charge(1).await?.is_used_up())
/// }
/// ```
#[must_use = "it says whether anything is left, so whether to go on"]
#[derive(Clone, Debug)]
pub struct Standing(Option<Decided>);

impl Standing {
    pub(super) fn new(decided: Option<Decided>) -> Self {
        Self(decided)
    }

    /// Whether a limit has no unit left, so that a request now is refused or has to wait. False if the meter covers no
    /// enforced limit.
    pub fn is_used_up(&self) -> bool {
        self.remaining() == Some(0)
    }

    /// The units left in the tightest limit: 0 also if it is in debt. `None` if the meter covers no enforced limit.
    pub fn remaining(&self) -> Option<u64> {
        self.0.as_ref().map(|decided| decided.remaining())
    }

    /// The numbers of each enforced limit, with its policy. `None` if no limit is enforced.
    pub fn decided(&self) -> Option<&Decided> {
        self.0.as_ref()
    }
}
