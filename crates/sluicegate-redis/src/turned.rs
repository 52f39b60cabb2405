//! A turn in several hash slots that is given up: all slots take it back, or none does.

use std::sync::Arc;

use sluicegate_core::store::Mode;
use tokio::time::Instant;

use crate::apart::{Part, by_slot, joined};
use crate::call::{Answer, Caller};
use crate::cell::Cell;

/// One slot after the other; those first that may refuse, which are those that do not merely hold it. What the others have
/// taken back before one of them refuses is charged again.
pub(crate) async fn turned_back(caller: &Arc<Caller>, cells: Vec<Cell>, deadline: Instant) -> Answer {
    let mut groups = by_slot(cells);
    groups
        .sort_by_key(|cells| cells.iter().all(|cell| cell.spent.as_ref().is_some_and(|spent| spent.is_held)));
    let mut parts: Vec<Part> = Vec::with_capacity(groups.len());
    for cells in groups {
        let (decision, _) = caller.ask(cells.clone(), deadline).await?;
        if !decision.is_allowed() {
            for part in &parts {
                let again: Vec<Cell> = part.cells.iter().map(|cell| cell.with_mode(Mode::Charge)).collect();
                let caller = Arc::clone(caller);
                tokio::spawn(async move { caller.ask(again, caller.deadline()).await });
            }
            parts.push(Part { cells, decision });
            return joined(parts);
        }
        parts.push(Part { cells, decision });
    }
    joined(parts)
}
