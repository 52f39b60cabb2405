//! Which parts a policy has, and where each of them is: [`Divide`].

use std::sync::Arc;

use sluicegate_core::key::KeyRef;
use sluicegate_core::{ConfigError, Key, Policy, Store};

/// How the buckets of policies are divided.
///
/// # Contract
/// The quotas of all parts sum to those of the policy, whichever instance asks: [`parts`](Self::parts) is a pure function of the
/// policy and of settings that are the same everywhere. All that the other functions say may differ between instances; it decides
/// where units are spent from, never how many there are.
pub(crate) trait Divide: Send + Sync + 'static {
    /// The stores on which the parts are. A policy that is kept whole is on the first.
    fn stores(&self) -> &[Arc<dyn Store>];

    /// The parts of a policy, which sum to it; none if it is kept whole. Of a policy that replaces another one, with whether that
    /// one is in parts: it is in as many.
    ///
    /// # Errors
    /// When the policy cannot be divided into as many parts, because one of them would have no unit.
    fn parts(&self, policy: &Policy, replaces: Option<bool>) -> Result<Option<Vec<Policy>>, ConfigError>;

    /// The place of the store on which this part is.
    fn store_of(&self, part: usize) -> usize;

    /// The name of a key in this part.
    fn key(&self, key: KeyRef<'_>, part: usize) -> Key;

    /// Which of this many parts is asked first.
    ///
    /// It is asked for all of the cost before any other part is known, so it should be one that is likely to have it.
    fn first(&self, parts: usize) -> usize;

    /// Whether parts are spent from in their order, and otherwise from the one that has most left.
    fn is_in_order(&self) -> bool;

    /// The store by which instances share what is not a bucket.
    fn shared(&self) -> &Arc<dyn Store>;
}
