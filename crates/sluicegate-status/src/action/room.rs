//! Changing waiting rooms: [`change_room`].
//!
//! The line itself keeps a change of a room, and all instances that share the line apply it. It lasts until the next change: a room that
//! reverted to another rate by itself would let visitors in unsupervised.

use http::StatusCode;

use super::fault::ActionFault;
use super::input::Input;
use crate::document::{RoomChanged, seen};
use crate::scope::Scope;

/// Sets the rate or the mode of a room, or both. Opening it to all has to be confirmed.
pub(super) async fn change_room(
    scope: &Scope,
    operator: &str,
    input: &Input,
) -> Result<RoomChanged, ActionFault> {
    let name = input.room.as_deref().ok_or_else(|| ActionFault::bad("no waiting room is named"))?;
    let room = scope
        .room(name)
        .ok_or_else(|| ActionFault::bad(format!("no waiting room named {name:?} is on this page")))?;
    let (rate, mode) = (input.rate.as_deref(), input.mode.as_deref());
    if rate.is_none() && mode.is_none() {
        return Err(ActionFault::bad("say which rate or which mode the room is to have"));
    }
    if mode == Some("open") && input.confirm.as_deref() != Some("yes") {
        return Err(ActionFault::bad(
            "confirm that all who wait are to be let in at once: \"confirm\" is \"yes\"",
        ));
    }
    let before = room.numbers();
    if let Some(known) = input.seen.as_deref().filter(|known| *known != seen(&before)) {
        let problem =
            format!("{name} was at {known} on that page, and is at {} now: look at it again", seen(&before));
        return Err(ActionFault::new(StatusCode::CONFLICT, problem));
    }
    room.change(rate, mode).await?;
    let after = room.numbers();
    let (from, to) = (seen(&before), seen(&after));
    tracing::info!(target: "sluicegate::audit", by = operator, room = name, from, to, "the waiting room is changed");
    Ok(RoomChanged { room: name.to_owned(), before, after })
}
