//! One ask of one request, about one key in Redis: [`KeyAsk`].
//!
//! An [`Ask`] borrows from its call, and a command outlives the call. So this ask owns its name, its costs and
//! its receipt, each copied once.

use std::cell::LazyCell;
use std::sync::Arc;

use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{Ask, Mode, Trace};
use smallvec::SmallVec;

use super::script::MODES;
use crate::store::key::{self, Tags};
use crate::store::prepared::Prepared;

/// One ask of one request.
#[derive(Clone, Debug)]
pub(super) struct KeyAsk {
    /// Its name in Redis; from `tag_at` on, it is the hash tag in its braces.
    pub(super) name: String,
    tag_at: usize,
    pub(super) prepared: Arc<Prepared>,
    pub(super) mode: Mode,
    /// Whether it is not carried out after its deadline.
    pub(super) expires: bool,
    /// One per quota.
    pub(super) costs: SmallVec<[u64; 2]>,
    /// The spend that the ask is about, if it is known.
    pub(super) spent: Option<ReceiptData>,
    /// Its place among the asks.
    pub(super) at: u8,
    /// Set if other slots decide the same request, too: the time for which units spent here are marked as not decided, in microseconds.
    pub(super) marked_us: Option<u64>,
}

/// The content of a receipt.
#[derive(Clone, Debug)]
pub(super) struct ReceiptData {
    pub(super) at_us: u64,
    /// For each quota, the units spent and not given back since, and the trace; empty if the receipt has no traces.
    pub(super) traces: SmallVec<[(u64, Trace); 1]>,
}

impl ReceiptData {
    fn of(receipt: &Receipt, quotas: usize) -> Self {
        let traces =
            (0_u8..).take(quotas).map_while(|quota| Some((receipt.cost_of(quota), *receipt.trace(quota)?)));
        Self { at_us: receipt.at_us(), traces: traces.collect() }
    }
}

impl KeyAsk {
    /// One per ask, under the rules of this moment, which is in microseconds.
    ///
    /// # Errors
    /// For no asks, for more than 16 quotas, and for a policy of another store: before anything is
    /// sent.
    pub(super) fn each(
        asks: &[Ask<'_>],
        tags: &Tags,
        now_us: impl Fn() -> u64,
    ) -> Result<Vec<Self>, StoreError> {
        // One moment for all asks, read only if a rule depends on it.
        let (now_us, mut quotas) = (LazyCell::new(now_us), 0);
        let asked = (0_u8..).zip(asks).map(|(at, ask)| {
            let prepared = ask.policy().prepared::<Arc<Prepared>>();
            let prepared = prepared.ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))?;
            let own = ask.own().map(|own| prepared.under(ask.policy(), own));
            let own = own.transpose().map_err(|error| {
                StoreError::with_source(StoreErrorKind::QuotasExhausted, error.to_string())
            })?;
            let prepared = own.as_ref().unwrap_or(prepared).at(|| *now_us);
            known(ask.mode().number())?;
            quotas += prepared.rules.len();
            if quotas > MAX_QUOTAS {
                return Err(StoreError::new(StoreErrorKind::TooManyQuotas));
            }
            let mut name = String::with_capacity(prepared.stem.len() + 24);
            name.push_str(&prepared.stem);
            name.push('{');
            tags.push_tag(ask.key(), &mut name);
            name.push('}');
            Ok(Self {
                name,
                tag_at: prepared.stem.len(),
                mode: ask.mode(),
                expires: ask.expires(),
                costs: (0_u8..).take(prepared.rules.len()).map(|quota| cost_of(ask, quota)).collect(),
                spent: ask.receipt().map(|receipt| ReceiptData::of(receipt, prepared.rules.len())),
                prepared,
                at,
                marked_us: None,
            })
        });
        let asked: Vec<_> = asked.collect::<Result<_, _>>()?;
        if asked.is_empty() { Err(StoreError::new(StoreErrorKind::NothingAsked)) } else { Ok(asked) }
    }

    /// A charge of one unit under this name.
    pub(super) fn probe(name: String, prepared: Arc<Prepared>) -> Self {
        let (tag_at, costs) = (prepared.stem.len(), std::iter::once(1).collect());
        let (mode, expires) = (Mode::Charge, false);
        Self { name, tag_at, prepared, mode, expires, costs, spent: None, at: 0, marked_us: None }
    }

    /// This ask in another mode.
    pub(super) fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, expires: mode.asks(), ..self.clone() }
    }

    /// This ask at no cost.
    pub(super) fn without_cost(mut self) -> Self {
        self.costs.fill(0);
        self
    }

    /// This ask in another mode, about the spend of this receipt.
    pub(super) fn of(&self, mode: Mode, receipt: &Receipt) -> Self {
        let spent = Some(ReceiptData::of(receipt, self.prepared.rules.len()));
        Self { mode, expires: mode.asks(), spent, ..self.clone() }
    }

    /// Whether this is a lease of the units that `spend` leaves.
    pub(super) fn is_behind(&self, spend: &Self) -> bool {
        let is_same = self.name == spend.name && self.prepared.text == spend.prepared.text;
        is_same && self.mode == Mode::Lease && spend.mode == Mode::Spend
    }

    fn tag(&self) -> &str {
        &self.name[self.tag_at..]
    }

    /// The hash slot of the key on a Cluster.
    pub(super) fn slot(&self) -> u16 {
        key::slot(self.tag().trim_matches(['{', '}']))
    }

    /// Whether both keys are certain to live on the same node of a Cluster: their names have the same hash tag.
    pub(super) fn lives_with(&self, other: &Self) -> bool {
        self.tag() == other.tag()
    }
}

/// Whether the script knows the mode of this number.
fn known(mode: u8) -> Result<(), StoreError> {
    if usize::from(mode) < MODES { Ok(()) } else { Err(StoreError::new(StoreErrorKind::UnknownMode)) }
}

/// The units of an ask. A refund gives back at most the units that took effect.
fn cost_of(ask: &Ask<'_>, quota: u8) -> u64 {
    match ask.receipt() {
        Some(receipt) => ask.cost_of(quota).min(receipt.cost_of(quota)),
        None => ask.cost_of(quota),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_the_script_does_not_know_is_not_sent() {
        let unknown = u8::try_from(MODES).expect("there are few");
        assert!(known(unknown - 1).is_ok());
        for number in [unknown, 127, 128, 255] {
            let error = known(number).expect_err("the script has no such mode");
            assert_eq!(error.kind(), StoreErrorKind::UnknownMode);
            assert!(!error.may_succeed_later() && !error.may_have_spent());
        }
    }
}
