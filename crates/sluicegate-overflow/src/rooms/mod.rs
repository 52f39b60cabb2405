//! Rooms of a rules file: [`Rooms`], and the doors through which rules let requests in.
//!
//! A reload makes new doors and puts them in force once the whole file was read, so a file with a mistake changes no room. A
//! [`NamedRoom`] stays the same, whatever file is in force.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use http::{Extensions, HeaderMap};
use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::support::{lock, random_secret};
use sluicegate_core::{ConfigError, Quota};
use sluicegate_tower::key::RequestView;
use sluicegate_tower::room::{
    Door, Room, RoomAdmission, RoomChange, RoomError, RoomMaker, RoomNumbers, RoomTerms, Visit,
};

use super::layer::AdmittedVisitor;
use super::line::LineSettings;
use crate::layer::WaitingRoomLayer;
use crate::line::LineHome;
use crate::page;
use crate::reply::Reply;
use crate::room::{PageFn, RoomParts, WaitingRoom};

/// The waiting rooms of a rules file, for `Rules::builder().rooms(..)`: a file says which requests wait and at what rate; code says where
/// the lines are kept, and gives the secrets.
///
/// ```
/// use sluicegate_overflow::Rooms;
/// use sluicegate_overflow::line::MemoryLine;
///
/// let rooms = Rooms::new(MemoryLine::new()).secrets("sixteen bytes or more", None);
/// // For the status page: whatever file is in force.
/// let sale = rooms.room("sale");
/// assert!(sale.get().is_none(), "no file has a room of this name yet");
/// ```
///
/// Clones share the rooms; make all settings before the first clone. Rules that share them share the rooms of one name.
///
/// # While the file changes
/// Visitors of a room that is in the file before and after keep their places, whatever else changes in the file; issued passes keep
/// their length. A rate that an operator has set stays until the file states a different one. A later opening time closes no room that has
/// opened.
///
/// A room that is removed from the file lets in all visitors that ask from then on, and its line in this process is forgotten. A line in Redis
/// is kept for a day: a room that comes back within a day has its old places, and newcomers wait until these were called in vain.
#[derive(Clone)]
pub struct Rooms {
    settings: Arc<RoomsSettings>,
    open: Arc<Mutex<HashMap<String, OpenRoom>>>,
}

/// The settings of all rooms that do not come from the file.
#[derive(Clone)]
struct RoomsSettings {
    home: Arc<dyn LineHome + Send + Sync>,
    secrets: Vec<Vec<u8>>,
    page: Arc<PageFn>,
    clock: Arc<dyn Clock>,
}

/// A room, in force while it has a door, and the rate of the file.
struct OpenRoom {
    room: Weak<RoomParts>,
    rate: Quota,
}

impl Rooms {
    /// Begins rooms whose lines are kept in this home.
    pub fn new(home: impl LineHome + Send + Sync + 'static) -> Self {
        let settings = RoomsSettings {
            home: Arc::new(home),
            secrets: vec![random_secret()],
            page: Arc::new(page::page),
            clock: Arc::new(SystemClock::new()),
        };
        Self { settings: Arc::new(settings), open: Arc::default() }
    }

    /// Sets the secret that signs tickets, and the former one: see [`secrets`](crate::WaitingRoomBuilder::secrets) of one room. Each room
    /// accepts only its own tickets. Default: drawn at random, so that tickets are valid only in this process.
    #[must_use]
    pub fn secrets(mut self, current: impl AsRef<[u8]>, former: Option<&[u8]>) -> Self {
        let former = former.map(<[u8]>::to_vec);
        let secrets = [current.as_ref().to_vec()].into_iter().chain(former).collect();
        Arc::make_mut(&mut self.settings).secrets = secrets;
        self
    }

    /// Draws the page that a browser gets, for all rooms: see [`page`](crate::WaitingRoomBuilder::page) of one. Default: a plain page.
    #[must_use]
    pub fn page(mut self, page: impl Fn(&Reply<'_>) -> String + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.settings).page = Arc::new(page);
        self
    }

    /// Sets the clock of tickets, and of lines in memory: it counts from the Unix epoch. Default: the machine's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        Arc::make_mut(&mut self.settings).clock = Arc::new(clock);
        self
    }

    /// The room of this name, whatever file is in force: for a status page. While no file has one, its mode is `open`.
    pub fn room(&self, name: impl Into<String>) -> NamedRoom {
        NamedRoom::new(self.clone(), name.into())
    }

    /// Exports the numbers of all rooms in force: see [`WaitingRoom::measure`].
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn measure(&self) {
        let rooms: Vec<_> = self.open().values().filter_map(|open| open.room.upgrade()).collect();
        rooms.into_iter().for_each(|room| WaitingRoom(room).measure());
    }

    /// The room of this name, if it is in force.
    pub(crate) fn find(&self, name: &str) -> Option<WaitingRoom> {
        self.open().get(name)?.room.upgrade().map(WaitingRoom)
    }

    /// The rate that the file gives, or last gave, to a room of this name.
    pub(crate) fn rate(&self, name: &str) -> Option<Quota> {
        self.open().get(name).map(|open| open.rate)
    }

    /// Notes that this room is in force, at the rate of its file. It is held weakly: a room lives as long as one of its doors.
    pub(crate) fn put(&self, room: &WaitingRoom, rate: Quota) {
        let open = OpenRoom { room: Arc::downgrade(&room.0), rate };
        self.open().insert(room.name().to_owned(), open);
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, OpenRoom>> {
        lock(&self.open)
    }
}

impl RoomMaker for Rooms {
    fn door(&self, terms: &RoomTerms) -> Result<Arc<dyn Door>, ConfigError> {
        let line = self.find(&terms.name).map(|room| Arc::clone(&room.0.line));
        let mut settings = None;
        let RoomsSettings { secrets, page, clock, .. } = &*self.settings;
        let mut builder = WaitingRoom::builder(&*terms.name, terms.rate).shared(secrets, page, clock);
        builder = terms.opens_at.into_iter().fold(builder, |room, time| room.opens_at(time));
        builder = terms.most_active.into_iter().fold(builder, |room, passes| room.most_active(passes));
        builder = terms.pass_lasts.into_iter().fold(builder, |room, lasts| room.pass_lasts(lasts));
        builder = terms.longest_line.into_iter().fold(builder, |room, places| room.longest_line(places));
        let mut on_missing_key = None;
        if let Some((places, key, action)) = &terms.places_per_client {
            on_missing_key = *action;
            builder = builder.places_per_client(*places, Arc::clone(key));
        }
        let room = builder.build_with(|terms, clock| {
            settings = Some(terms.clone());
            // Opens a throwaway line if there is one already: this shows whether the home can keep these terms.
            let opened = self.settings.home.open(terms, clock)?;
            Ok(line.unwrap_or(opened))
        })?;
        let settings = settings.expect("a room is built on a line");
        let layer = WaitingRoomLayer::new(room).on_missing_key(on_missing_key);
        Ok(Arc::new(RoomDoor { layer, settings, rooms: self.clone() }))
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms").field("open", &self.open().keys()).finish_non_exhaustive()
    }
}

struct RoomDoor {
    layer: WaitingRoomLayer,
    settings: LineSettings,
    rooms: Rooms,
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
    fn new(rooms: Rooms, name: String) -> Self {
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
