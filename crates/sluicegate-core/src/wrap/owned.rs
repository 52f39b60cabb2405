//! An ask that outlives its call: [`OwnedAsk`].

use std::sync::Arc;

use smallvec::SmallVec;

use crate::key::Key;
use crate::receipt::Receipt;
use crate::store::{Ask, Mode, OwnQuotas, PreparedPolicy};

/// An ask that outlives its call, for stores around stores that go on when an answer has come.
///
/// Cloning the key costs an allocation above 51 bytes of text; everything else is a count.
#[derive(Debug)]
pub struct OwnedAsk {
    policy: PreparedPolicy,
    own: Option<Arc<OwnQuotas>>,
    key: Key,
    cost: u64,
    costs: SmallVec<[u64; 2]>,
    mode: Mode,
    receipt: Option<Receipt>,
}

impl OwnedAsk {
    /// The same ask. It is about the same receipt, so only one of the two may give anything back.
    pub fn new(ask: &Ask<'_>) -> Self {
        Self {
            policy: ask.policy().clone(),
            own: ask.own().cloned(),
            key: ask.key().to_key(),
            cost: ask.cost(),
            costs: ask.costs().into(),
            mode: ask.mode(),
            receipt: ask.receipt().map(Receipt::copied),
        }
    }

    /// The ask.
    pub fn ask(&self) -> Ask<'_> {
        let mut ask =
            Ask::new(&self.policy, self.key.as_ref(), self.cost, self.mode).under(self.own.as_ref());
        if !self.costs.is_empty() {
            ask = ask.with_costs(&self.costs);
        }
        match &self.receipt {
            Some(receipt) => ask.of(receipt),
            None => ask,
        }
    }
}
