//! Telling the store of a suspension that was made without it.
//!
//! Processes that decide alone suspend the same key each for itself. Charged as other debts are, what is left of their suspensions
//! would add up, and so would the times that the key was suspended. So the store is told that the key is suspended for *at least*
//! so long, in one call: whichever process comes first, and however often it is told, the key is suspended until the latest of
//! the ends, and once.

use std::time::Duration;

use sluicegate_core::error::StoreError;
use sluicegate_core::key::Key;
use sluicegate_core::store::{Ask, Mode};

use super::State;
use super::debts::Debt;
use super::settle::is_owed_on;

impl State {
    /// Suspends the key for at least what is left of a suspension that the fallback has made. One that has ended in the same
    /// outage is forgotten.
    pub(super) async fn suspend(&self, key: &Key, debt: &Debt) -> Result<(), StoreError> {
        let left = self.still_counts(key, debt).into_iter().max().unwrap_or_default();
        if left == 0 {
            return Ok(());
        }
        let ask = |cost, mode| Ask::new(&debt.policy, key.as_ref(), cost, mode);
        // The question passes if the key is suspended for no longer than that, and the reports are made if it passes.
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
            let counted = self.within.decide(&[Ask::new(suspensions, key.as_ref(), *times, Mode::Charge)]);
            if let Err(error) = self.deadline.keep(counted).await {
                self.counts.failed(&error);
                if is_owed_on(&error) {
                    // The key is suspended there. Told again, that would be no new suspension, so the count is owed alone.
                    self.fallback.debts.add_count(suspensions, key.clone(), *times);
                }
            }
        }
        Ok(())
    }
}
