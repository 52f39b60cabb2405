//! Reports a suspension to the store that was made without it.
//!
//! Processes that decide alone each suspend the same key by themselves. If their suspensions were charged like other debts, the
//! remaining times would add up, and so would the counts of suspensions. So each process reports, in one call, that the key is
//! suspended for *at least* this time: in any order and number of reports, the key is suspended until the latest end,
//! and counts as suspended once.

use std::time::Duration;

use sluicegate_core::error::StoreError;
use sluicegate_core::key::Key;
use sluicegate_core::store::{Ask, Mode};

use super::ResilientState;
use super::debts::Debt;
use super::settle::is_owed_on;

impl ResilientState {
    /// Suspends the key for at least the rest of a suspension that the fallback has made. A suspension that has ended in the same
    /// outage is forgotten.
    pub(super) async fn suspend(&self, key: &Key, debt: &Debt) -> Result<(), StoreError> {
        let left = self.still_counts(key, debt).into_iter().max().unwrap_or_default();
        if left == 0 {
            return Ok(());
        }
        let ask = |cost, mode| Ask::new(&debt.policy, key.as_ref(), cost, mode);
        // The question passes unless the key is already suspended for longer, and the reports are made only if it passes.
        let longest = Duration::from_millis(left);
        let told = self.within.decide(&[
            ask(1, Mode::Reserve { longest }),
            ask(0, Mode::Reset),
            ask(left, Mode::Charge),
        ]);
        let told = self.deadline.keep(told).await?;
        if let Some((suspensions, times)) = &debt.counted
            && told.is_allowed()
            && told.delay().is_zero()
        {
            let counted = Ask::new(suspensions, key.as_ref(), *times, Mode::Charge);
            let parts = self.within.parts(&[counted]);
            if let Err(error) = self.deadline.keep(self.within.decide(&[counted])).await {
                self.counts.failed(&error);
                if is_owed_on(&error) {
                    // The key is suspended in the store. Another call would not count as a new suspension, so the count is owed alone.
                    self.fallback.debts.add_count(parts, suspensions, key.clone(), *times);
                }
            }
        }
        Ok(())
    }
}
