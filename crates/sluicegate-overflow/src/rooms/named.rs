//! A room by its name, whatever file is in force: [`NamedRoom`].

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, Quota};
use sluicegate_tower::room::{Room, RoomChange, RoomError, RoomNumbers};

use crate::room::WaitingRoom;
use crate::rooms::Rooms;

/// A room by its name, whatever file is in force: made by [`Rooms::room`], for `StatusPageBuilder::room`.
///
/// ```
/// use sluicegate_overflow::Rooms;
/// use sluicegate_overflow::line::MemoryLine;
/// use sluicegate_tower::room::Room;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let sale = Rooms::new(MemoryLine::new()).room("sale");
/// let problem = sale.change(Some("5/s"), None).await.unwrap_err().to_string();
/// assert_eq!(problem, "no rule that is in force has the waiting room \"sale\"");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NamedRoom {
    rooms: Rooms,
    name: String,
}

impl NamedRoom {
    pub(super) fn new(rooms: Rooms, name: String) -> Self {
        Self { rooms, name }
    }

    /// The current room; `None` while no file in force has one of this name. Ask for it each time: another file may have another room.
    pub fn get(&self) -> Option<WaitingRoom> {
        self.rooms.find(&self.name)
    }
}

impl Room for NamedRoom {
    fn name(&self) -> &str {
        &self.name
    }

    fn numbers(&self) -> RoomNumbers {
        match self.get() {
            Some(room) => room.numbers(),
            // All requests pass.
            None => RoomNumbers::new("open", self.rooms.rate(&self.name).unwrap_or(Quota::per_second(1))),
        }
    }

    fn change<'a>(&'a self, rate: Option<&'a str>, mode: Option<&'a str>) -> RoomChange<'a> {
        Box::pin(async move {
            let room = self.get().ok_or_else(|| {
                let problem = format!("no rule that is in force has the waiting room {:?}", self.name);
                RoomError::Config(ConfigError::new(ConfigErrorKind::Layer, problem))
            })?;
            room.change(rate, mode).await
        })
    }
}
