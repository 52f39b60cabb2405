//! The quotas that requests bring for their keys, each with a number: [`Brought`].
//!
//! Several threads read lines, so the numbers depend on which thread comes first. Figures do not: a number only stands for quotas.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sluicegate_core::RateLimiter;
use sluicegate_core::limiter::ForLayers;
use sluicegate_core::policy::Quotas;

/// All quotas of keys so far. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought(Arc<RwLock<NumberedQuotas>>);

#[derive(Debug, Default)]
struct NumberedQuotas {
    numbers: HashMap<Arc<Quotas>, u32>,
    each: Vec<Arc<Quotas>>,
}

/// The number of a row's own quotas.
pub(crate) const OWN_OF_ROW: u32 = 0;

impl Brought {
    /// The number of the quotas of an ask's limiter, or [`OWN_OF_ROW`] if they are those of its row.
    pub(super) fn number(&self, row: &RateLimiter, limiter: &RateLimiter) -> u32 {
        if limiter == row {
            return OWN_OF_ROW;
        }
        let quotas = limiter.with_policy(Quotas::of);
        if quotas == row.with_policy(Quotas::of) {
            return OWN_OF_ROW;
        }
        let known = |all: &NumberedQuotas| all.numbers.get(&quotas).copied();
        if let Some(number) = known(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return number;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known(&all).unwrap_or_else(|| {
            let quotas = Arc::new(quotas);
            all.each.push(Arc::clone(&quotas));
            let number = u32::try_from(all.each.len()).unwrap_or(u32::MAX);
            all.numbers.insert(quotas, number);
            number
        })
    }

    /// The quotas with this number; `None` for those of the row.
    pub(crate) fn quotas(&self, number: u32) -> Option<Arc<Quotas>> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).each.get(place).cloned()
    }
}
