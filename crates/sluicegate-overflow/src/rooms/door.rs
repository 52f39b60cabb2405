//! The door of a room, through which rules let requests in.
//!
//! A reload makes new doors and puts them in force once the whole file was read, so a file with a mistake changes no room. If a
//! line over a network does not accept a rate, the change is retried each second, until it is accepted or the room is gone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Extensions, HeaderMap};
use sluicegate_core::Quota;
use sluicegate_tower::key::RequestView;
use sluicegate_tower::room::{Door, Room, RoomAdmission, RoomChange, RoomNumbers, Visit};
use tokio::runtime::Handle;

use crate::layer::{AdmittedVisitor, WaitingRoomLayer};
use crate::line::{LineChange, LineFuture, LineSettings};
use crate::room::RoomParts;
use crate::rooms::Rooms;

/// The time after which a change that the line did not accept is retried.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct RoomDoor {
    pub(super) layer: WaitingRoomLayer,
    pub(super) settings: LineSettings,
    pub(super) rooms: Rooms,
}

impl Room for RoomDoor {
    fn name(&self) -> &str {
        self.layer.room().name()
    }

    fn numbers(&self) -> RoomNumbers {
        self.layer.room().numbers()
    }

    fn change<'a>(&'a self, rate: Option<&'a str>, mode: Option<&'a str>) -> RoomChange<'a> {
        self.layer.room().change(rate, mode)
    }
}

impl Door for RoomDoor {
    fn admit(&self, request: RequestView<'_>) -> RoomAdmission {
        self.layer.admit(request)
    }

    fn put_in_force(&self, with_rate: bool) {
        let (room, rate) = (self.layer.room(), self.settings.rate);
        self.rooms.put(room, rate);
        room.0.line.set(self.settings.clone());
        if !with_rate {
            return;
        }
        if let Err(pending) = room.0.line.change(LineChange::Rate(rate)).now() {
            let runtime = self.rooms.settings.runtime.clone().or_else(|| Handle::try_current().ok());
            match runtime {
                Some(runtime) => {
                    runtime.spawn(change_rate(Arc::downgrade(&room.0), rate, pending));
                }
                None => tracing::error!(
                    room = room.name(),
                    "its rate stays as it was: here is no tokio runtime to change it on"
                ),
            }
        }
    }
}

/// Changes the rate once the line answers, unless other settings are in force by then.
async fn change_rate(room: Weak<RoomParts>, rate: Quota, mut changing: LineFuture<()>) {
    while let Err(error) = changing.await {
        tracing::warn!(%rate, %error, "the rate of a waiting room is not changed yet");
        tokio::time::sleep(AGAIN).await;
        let Some(room) = room.upgrade() else { return };
        changing = room.line.change(LineChange::Rate(rate));
    }
}

impl Visit for AdmittedVisitor {
    fn enter(&self, extensions: &mut Extensions) {
        extensions.insert(self.pass.clone());
    }

    fn leave(self: Box<Self>, fields: &mut HeaderMap) {
        self.told(fields);
    }
}
