//! The parts of policies, and the place of each part: [`Divide`].

use std::sync::Arc;

use sluicegate_core::key::KeyRef;
use sluicegate_core::{ConfigError, Key, Policy, Store};

/// Defines how the buckets of policies are divided.
///
/// # Contract
/// The quotas of all parts sum to those of the policy, whichever instance asks: [`parts`](Self::parts) is a pure function of the policy and
/// of settings that are the same everywhere. The results of the other functions may differ between instances; they decide where units are
/// spent, never their number.
pub(crate) trait Divide: Send + Sync + 'static {
    /// The stores that hold the parts. A policy that is kept whole is on the first.
    fn stores(&self) -> &[Arc<dyn Store>];

    /// The parts of a policy, which sum to it; `None` if it is kept whole. `replaces` says whether a policy that this one replaces is in
    /// parts; if so, this one has the same number of parts.
    ///
    /// # Errors
    /// When the policy cannot be divided into that many parts, because one of them would have no unit.
    fn parts(&self, policy: &Policy, replaces: Option<bool>) -> Result<Option<Vec<Policy>>, ConfigError>;

    /// The index of the store that holds this part.
    fn store_of(&self, part: usize) -> usize;

    /// The name of a key in this part.
    fn key(&self, key: KeyRef<'_>, part: usize) -> Key;

    /// The part that is asked first, among this many.
    ///
    /// It is asked for the whole cost before the status of any part is known, so it should be likely to have room.
    fn first(&self, parts: usize) -> usize;

    /// Whether parts are spent from in their order, instead of from the part with the most units left.
    fn is_in_order(&self) -> bool;

    /// The store on which instances share everything except buckets.
    fn shared(&self) -> &Arc<dyn Store>;
}
