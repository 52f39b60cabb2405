//! An ask that outlives its call: [`OwnedAsk`].

use smallvec::SmallVec;

use crate::key::Key;
use crate::receipt::Receipt;
use crate::store::{Ask, Mode, PreparedPolicy};

/// An ask that outlives its call, for store wrappers that continue after an answer.
///
/// Cloning the key allocates above 51 bytes of text, and a receipt allocates; everything else is a reference count.
#[derive(Debug)]
pub struct OwnedAsk {
    policy: PreparedPolicy,
    key: Key,
    cost: u64,
    costs: SmallVec<[u64; 2]>,
    mode: Mode,
    /// Boxed, because few asks have one.
    receipt: Option<Box<Receipt>>,
}

impl OwnedAsk {
    /// A copy of an ask. It has the same receipt, so only one of the two may give units back.
    pub fn new(ask: &Ask<'_>) -> Self {
        Self {
            policy: ask.prepared(),
            key: ask.key().to_key(),
            cost: ask.cost(),
            costs: ask.costs().into(),
            mode: ask.mode(),
            receipt: ask.receipt().map(|receipt| Box::new(receipt.copied())),
        }
    }

    /// The ask.
    pub fn ask(&self) -> Ask<'_> {
        let mut ask = Ask::new(&self.policy, self.key.as_ref(), self.cost, self.mode);
        if !self.costs.is_empty() {
            ask = ask.with_costs(&self.costs);
        }
        match &self.receipt {
            Some(receipt) => ask.of(receipt),
            None => ask,
        }
    }
}
