//! What was seen under a fault.

use std::time::{Duration, Instant};

use sluicegate_core::store::DecidedBy;
use sluicegate_resilient::ResilientStatus;

use super::SLACK;
use super::ledger::{admitted, spent};
use crate::load::{Kind, Record};
use crate::logs::Logs;
use crate::machine::strain;
use crate::oracle::Admission;

/// What was seen, for what a scenario expects besides.
pub(crate) struct Findings {
    pub(crate) records: Vec<Record>,
    pub(crate) status: ResilientStatus,
    pub(crate) logs: Logs,
    pub(crate) fault: Instant,
    pub(super) healed: Instant,
    /// The status when the fault began.
    pub(super) before: ResilientStatus,
    /// From the healing to the first decision of the store.
    pub(super) recovered_after: Duration,
}

impl Findings {
    /// Requests that began after the fault did, and were decided on this basis.
    pub(crate) fn since_fault(&self, basis: DecidedBy) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.at >= self.fault && record.is(basis))
    }

    /// Checks that the store decided again so soon after the healing.
    pub(crate) fn recovered_within(&self, most: Duration) {
        let strain = strain(self.healed, self.healed + self.recovered_after);
        assert!(self.recovered_after <= most * strain, "{:?} after the healing", self.recovered_after);
    }

    /// Checks that from some time after the fault on, no request waited for anything as long as it lasted.
    pub(crate) fn nobody_waited(&self, from: Duration) {
        let outage = self.fault + from..self.healed;
        let strain = self.strain();
        let during: Vec<_> = self.records.iter().filter(|record| outage.contains(&record.at)).collect();
        let waited = during.iter().filter(|record| record.took > SLACK * strain).count();
        assert!(waited <= during.len() * strain as usize / 200, "{waited} of {} waited", during.len());
    }

    /// How busy the machine was with other things from the fault on until all was well; see [`strain`].
    pub(crate) fn strain(&self) -> u32 {
        strain(self.fault, self.healed + Duration::from_secs(2))
    }

    /// What one key was admitted by one policy, on this basis.
    pub(crate) fn admitted(&self, policy: Kind, index: usize, basis: DecidedBy) -> Vec<Admission> {
        admitted(&self.records, policy, index, basis)
    }

    /// Units of the ledger that were admitted, and calls that were given up.
    pub(crate) fn spent(&self) -> (u64, u64) {
        let (store, alone, given_up) = spent(&self.records, Duration::from_millis(50));
        (store + alone, given_up)
    }

    /// Calls since the fault that the store did not answer, or not in time.
    pub(crate) fn errors(&self) -> u64 {
        errors(&self.status) - errors(&self.before)
    }

    /// Checks that at most this number of calls since the fault failed, and more on a busy machine.
    pub(crate) fn few_errors(&self, most: u64) {
        assert!(self.errors() <= most * u64::from(self.strain()), "{:?}", self.status);
    }

    /// Checks that a hanging server cost some timeouts, and not one for each request.
    pub(crate) fn few_timeouts(&self) {
        let most = 30 * u64::from(self.strain());
        assert!((3..=most).contains(&self.status.timeouts), "{:?}", self.status);
    }

    /// Checks that the breaker has not opened since the fault, or rarely on a busy machine.
    pub(crate) fn stayed_closed(&self) {
        let opened = self.status.opened - self.before.opened;
        assert!(opened < u64::from(self.strain()), "opened {opened} times: {:?}", self.status);
    }

    /// Checks that the log names this as the reason why the store failed.
    pub(crate) fn logged(&self, reason: &str) {
        let lines = self.logs.lines();
        let loud: Vec<_> = lines.iter().filter(|line| line.level <= tracing::Level::WARN).collect();
        assert!(loud.iter().any(|line| line.text.contains(reason)), "{reason} is not in {loud:#?}");
    }
}

fn errors(status: &ResilientStatus) -> u64 {
    status.timeouts + status.unavailable + status.protocol
}
