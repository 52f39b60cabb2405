//! The limiters that a turn is reserved under: [`LimitersOfTurn`].
//!
//! The queues know limiters by identity only, through this trait, so that they depend on no limiter
//! and no store and can be driven by models.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::decision::Decision;
use crate::few::few;
use crate::key::Key;
use crate::receipt::Receipt;
use crate::store::DecisionFuture;

/// The limiters whose turn a request waits for, from the view of the queues.
pub(crate) trait LimitersOfTurn {
    /// The limiters and keys, in the order of the asks.
    fn line(&self) -> &LineKeys;

    /// The cost of each ask.
    fn costs(&self) -> &AskCosts;

    /// Gives these turns up; the store says whether it takes them back.
    fn give_up(&self, turns: &TurnReceipts) -> DecisionFuture;

    /// Starts a task with this number that waits for the store's answers about turns of the line that were given up. Returns
    /// whether there is a runtime for it.
    fn attend(&self, number: u64) -> bool;
}

impl dyn LimitersOfTurn + '_ {
    pub(super) fn receipts(&self, decision: &Decision) -> TurnReceipts {
        few((0..self.costs().len()).filter_map(|ask| Some((ask, decision.receipt(ask)?))))
    }
}

/// Units that the other limits of a request hold until it proceeds. They stay with the request, at whichever turn it proceeds.
pub(crate) trait UnitsHeld: Send + Sync {
    /// The request proceeds now.
    fn depart(&self);
}

/// The part of a request that does not depend on its turn.
pub(crate) struct RequestParts {
    pub(crate) held: Arc<dyn UnitsHeld>,
    /// When the limits that hold these units let the request proceed: no later than its own turn.
    pub(crate) ready_at: Instant,
}

/// Limiters and keys: requests that wait for the same ones share turns.
pub(crate) type LineKeys = Arc<[(Identity, Key)]>;

/// Units, by the index of the ask.
pub(crate) type AskCosts = SmallVec<[u64; 2]>;

/// The receipts of a turn, by the index of the ask.
pub(crate) type TurnReceipts = SmallVec<[(usize, Receipt); 1]>;

/// The identity of a limiter, without keeping it open. While it exists, no other limiter has the same identity.
#[derive(Clone)]
pub(crate) struct Identity(Weak<dyn Any + Send + Sync>);

impl Identity {
    pub(crate) fn of<T: Send + Sync + 'static>(shared: &Arc<T>) -> Self {
        let weak: Weak<T> = Arc::downgrade(shared);
        Self(weak)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().cast::<()>().hash(state);
    }
}
