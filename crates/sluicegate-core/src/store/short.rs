//! The short way of a policy with one quota: [`ShortWay`].

use super::{DecisionFuture, QuotaStatus};
use crate::key::KeyRef;

/// Spends from the single quota of one policy, and does nothing else. A [`Store`](super::Store) may offer it for a policy, so that a
/// check of one key makes no [`Ask`](super::Ask) and looks up nothing that was known when the policy was opened.
///
/// It decides as the store does, and leaves all cases to the store that one look at the key does not decide.
pub trait ShortWay: Send + Sync {
    /// Spends `cost` units of the key if they fit now, or refuses them, and counts the refusal if it counts towards a suspension. `otherwise`
    /// asks the store in all other cases; nothing has been spent or counted then.
    ///
    /// `told` hears the moment of a decision that was made without an ask, in microseconds of the store's clock, and the status of the
    /// quota, before the answer is written: a decision is large, and a wrapper that looked at it afterwards would copy it. No lock
    /// is held meanwhile.
    ///
    /// # Errors
    /// As [`Store::decide`](super::Store::decide).
    ///
    /// # Cancel safety
    /// As [`Store::decide`](super::Store::decide).
    #[expect(clippy::type_complexity, reason = "a name for it would be one more to learn")]
    fn spend(
        &self,
        key: &KeyRef<'_>,
        cost: u64,
        told: Option<&dyn Fn(u64, &QuotaStatus)>,
        otherwise: &dyn Fn() -> DecisionFuture,
    ) -> DecisionFuture;

    /// Whether it is certain without a call that this key is at rest under the policy, so that a peek at it can be left out.
    /// By default it is `false`.
    fn is_at_rest(&self, key: &KeyRef<'_>) -> bool {
        _ = key;
        false
    }
}
