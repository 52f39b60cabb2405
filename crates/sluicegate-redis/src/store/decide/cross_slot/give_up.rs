//! Gives up a turn in several hash slots: all slots take it back, or none does.

use std::sync::Arc;

use sluicegate_core::store::Mode;
use tokio::time::Instant;

use super::parts::{SlotPart, by_slot, joined};
use crate::store::decide::ask::KeyAsk;
use crate::store::decide::caller::Caller;
use crate::store::decide::request::DecisionResult;

/// Asks one slot after the other. Slots that may refuse come first, which are those that do more than hold the units. If one
/// refuses, the units that the others have taken back are charged again.
pub(super) async fn give_up(caller: &Arc<Caller>, asks: Vec<KeyAsk>, deadline: Instant) -> DecisionResult {
    let mut groups = by_slot(asks);
    groups.sort_by_key(|asks| asks.iter().all(|ask| ask.spent.as_ref().is_some_and(|spent| spent.is_held)));
    let mut parts: Vec<SlotPart> = Vec::with_capacity(groups.len());
    for asks in groups {
        let decision = caller.ask(asks.clone(), deadline).await?;
        if !decision.is_allowed() {
            for part in &parts {
                let again: Vec<KeyAsk> = part.asks.iter().map(|ask| ask.with_mode(Mode::Charge)).collect();
                let caller = Arc::clone(caller);
                tokio::spawn(async move { caller.ask(again, caller.client.deadline()).await });
            }
            parts.push(SlotPart { asks, decision });
            return joined(parts);
        }
        parts.push(SlotPart { asks, decision });
    }
    joined(parts)
}
