//! The door of a room, through which rules let requests in.
//!
//! A reload makes new doors and puts them in force once the whole file was read, so a file with a mistake changes no room.

use http::{Extensions, HeaderMap};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::room::{Door, Room, RoomAdmission, RoomChange, RoomNumbers, Visit};

use crate::layer::{AdmittedVisitor, WaitingRoomLayer};
use crate::line::LineSettings;
use crate::rooms::Rooms;

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
        room.0.line.set(self.settings.clone(), with_rate);
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
