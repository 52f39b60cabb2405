//! Rooms of a rules file: [`Rooms`].

mod door;
mod named;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::support::{lock, random_secret};
use sluicegate_core::{ConfigError, Quota};
use sluicegate_tower::room::{Door, RoomMaker, RoomTerms};

use self::door::RoomDoor;
pub use self::named::NamedRoom;
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
