//! The status of all parts of some asks: [`StatusTable`].

use sluicegate_core::clock::micros;
use sluicegate_core::store::{DecidedBy, QuotaStatus};

use super::piece::{PartStatuses, PartialAsk, PieceOutcome};
use super::request::DividedAsk;

/// The status of all parts of each ask, as peeked.
///
/// All statuses of one call have the same moment. Rows of several calls may differ by the length of a call.
pub(super) struct StatusTable {
    /// Statuses by ask, then by part.
    rows: Vec<Vec<PartStatuses>>,
    pub(super) at_us: u64,
    pub(super) by: DecidedBy,
}

impl StatusTable {
    /// The result of a look at these pieces.
    pub(super) fn new(asks: &[DividedAsk<'_>], pieces: &[PartialAsk<'_>], came: PieceOutcome) -> Self {
        let rows = asks.iter().map(|asked| vec![PartStatuses::new(); asked.opened.parts.len()]);
        let mut table = Self { rows: rows.collect(), at_us: came.at_us, by: came.by };
        for (piece, of) in pieces.iter().zip(came.each) {
            table.rows[piece.ask][piece.part] = of.statuses;
        }
        table
    }

    /// The statuses of the quotas of this part.
    pub(super) fn part(&self, ask: usize, part: usize) -> &[QuotaStatus] {
        &self.rows[ask][part]
    }

    /// The units that this quota has left in each part.
    pub(super) fn remaining(&self, ask: usize, quota: usize) -> Vec<u64> {
        let each = self.rows[ask].iter().map(|row| row.get(quota).map_or(0, QuotaStatus::remaining));
        each.collect()
    }

    /// The wait until this part alone passes the cost, in microseconds; `None` if it never does.
    pub(super) fn alone_us(&self, ask: usize, part: usize) -> Option<u64> {
        let row = &self.rows[ask][part];
        let refused = row.iter().filter(|status| !status.passed());
        let possible = !row.is_empty() && !row.iter().any(QuotaStatus::is_impossible);
        let waits = refused.map(|status| micros(status.available_after()));
        possible.then(|| waits.max().unwrap_or(0))
    }
}
