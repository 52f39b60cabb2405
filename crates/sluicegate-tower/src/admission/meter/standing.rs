//! The answer to a charge or a refund: [`Standing`].

use crate::respond::decided::Decided;

/// Where the keys of a request stand after its [`Meter`](crate::Meter) has charged units or given some back.
///
/// ```
/// use sluicegate_tower::Meter;
///
/// /// Whether one more message may be read: each costs a unit of the connection's limits.
/// async fn goes_on(meter: &Meter) -> Result<bool, sluicegate_core::StoreError> {
///     Ok(!meter.charge(1).await?.is_used_up())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Standing(Option<Decided>);

impl Standing {
    pub(super) fn new(decided: Option<Decided>) -> Self {
        Self(decided)
    }

    /// Whether a limit has no unit left, so that a request which comes now is refused or has to wait. A meter that is about no enforced
    /// limit uses nothing up.
    pub fn is_used_up(&self) -> bool {
        self.remaining() == Some(0)
    }

    /// Units left of the limit that has least: 0 also where it is in debt. `None` if the meter is about no enforced limit.
    pub fn remaining(&self) -> Option<u64> {
        self.0.as_ref().map(|decided| decided.remaining())
    }

    /// The numbers of each limit that is enforced, with its policy. `None` if there is none.
    pub fn decided(&self) -> Option<&Decided> {
        self.0.as_ref()
    }
}
