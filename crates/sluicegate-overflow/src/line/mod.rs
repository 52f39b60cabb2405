//! The line of a waiting room, its questions and its answers: [`Line`].
//!
//! A line keeps places and decides whose turn it is. [`MemoryLine`] keeps it in this process. `RedisLine` (feature `redis`) keeps one that
//! several instances share: each poll is one call, and all decisions are made there.
//!
//! A [`WaitingRoom`](crate::WaitingRoom) is given a home of lines, and asks it at every poll:
//!
//! ```
//! use sluicegate_overflow::WaitingRoom;
//! use sluicegate_overflow::line::MemoryLine;
//!
//! let room = WaitingRoom::builder("sale", "100/s").build(MemoryLine::new())?;
//! assert_eq!(room.status().waiting, 0);
//! # Ok::<(), sluicegate_core::ConfigError>(())
//! ```
//!
//! # When not to use it
//! A service passes a home to a room, and needs nothing else from this module: questions, answers and settings are for authors of lines. Do
//! not use a line in memory for a room of several instances, because each instance would let visitors in at the whole rate.

mod answer;
mod memory;
mod pace;
mod passes;
mod places;
#[cfg(feature = "redis")]
mod redis;
#[cfg(test)]
mod sale;
mod schedule;
mod settings;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upset;

use std::fmt;
use std::sync::Arc;

use sluicegate_core::ConfigError;
use sluicegate_core::clock::Clock;

pub use self::answer::{LineAnswer, LineFuture, LinePlace, LineStanding, LineTurn, NoPlace};
pub use self::memory::MemoryLine;
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use self::redis::RedisLine;
pub use self::settings::{LineChange, LineMode, LineSettings, LineStatus};

/// The keeper of lines, which opens one for each room.
///
/// [`MemoryLine`] and `RedisLine` are homes. Another home has to keep the rules of [`Line`] as these two do: the same
/// polls at the same times get the same answers. A home is asked once for each room, and by [`Rooms`](crate::Rooms) once for each file that
/// is put in force, which may drop an unused line at once: opening changes nothing for waiting visitors.
///
/// ```
/// use sluicegate_overflow::WaitingRoom;
/// use sluicegate_overflow::line::MemoryLine;
///
/// let sale = WaitingRoom::builder("sale", "1000/s").build(MemoryLine::new())?;
/// assert_eq!(sale.status().waiting, 0);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
pub trait LineHome {
    /// The line of a room with these settings. A home that is asked over a network decides by its own time, not by this clock.
    ///
    /// # Errors
    /// When this home cannot keep the settings exactly.
    fn open(&self, settings: LineSettings, clock: Arc<dyn Clock>) -> Result<Arc<dyn Line>, ConfigError>;
}

/// The line of one room: places in their order, and whose turn it is.
///
/// # The rules of a line
/// - *Order*: a place has a rank: its number, or a rank by its lot if it was taken before the room opened ([`LinePlace::rank`]). Lower ranks
///   come first.
/// - *Rate*: turns are spaced by the rate, without a burst. A visitor is told to come half a second to a second and a half before its turn,
///   in whole seconds; a turn that is at most two seconds away is given, and the visitor is held until then ([`LineTurn::after`]).
/// - *Calls*: the line calls ranks at the rate, and up to half as fast again while a turn is near that no visitor has taken. A called place
///   may take the next free turn whenever it asks, so one whose visitor does not come delays no other.
/// - *Appointments*: a visitor asks after two thirds of its wait, so it is not called before it asks, and then for its turn. In a pause it asks
///   once a minute.
/// - *Going back*: a called visitor that finds no turn is the next: no visitor behind it is called before. So the order is restored after an
///   outage, a step of the clock, or a rate that was raised and lowered again.
/// - *Absence*: a called place whose visitor has not asked for a minute after its appointment is passed over: it counts neither as waiting nor
///   for its client. Time in which no visitor asks at all counts for ten minutes at most, and forgets no place.
/// - *Passes*: if passes are bounded, a free pass calls the first waiting visitor, and for a minute no visitor behind it; after each minute in
///   which it stays free, twice as many are called.
/// - *Return*: a visitor that was passed over and comes back within ten minutes is due; its turn is the next free one.
/// - *Once*: a place that had its turn gives the same turn again for a minute, so that a lost answer costs no visitor its place. After that
///   the place is unknown. A visitor that comes without a place while the room is open to all enters without one: its pass is valid like any
///   other, and its turn is not given again.
///
/// The caller needs no clock: times in answers are spans from the moment of the answer.
pub trait Line: Send + Sync + fmt::Debug + 'static {
    /// Answers one poll of a visitor, with its place if it has one. An unknown place is replaced by a new one.
    ///
    /// # Errors
    /// When the line does not answer.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, a place may have been taken or a turn given. A turn comes again with the same place.
    fn ask(&self, ask: LineAsk) -> LineFuture<LineAnswer>;

    /// Ends the pass of this place and frees its room for a waiting visitor.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the pass may have ended or not.
    fn end(&self, place: LinePlace) -> LineFuture<()>;

    /// Whether the pass of this place was [ended](Self::end) early, as far as this instance knows. It is called for every request
    /// that shows a pass, so it must not block.
    fn has_ended(&self, place: LinePlace) -> bool;

    /// Changes the rate or the mode while visitors wait. All keep their places.
    ///
    /// # Errors
    /// When the line does not answer; it may have been changed or not.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the line may have been changed or not.
    fn change(&self, change: LineChange) -> LineFuture<()>;

    /// Sets other settings; all visitors keep their places. The rate is one of them only `with_rate`, because operators
    /// [change](Self::change) it; a line over a network retries until it has accepted the rate. A line that has opened stays open. If instances
    /// share the line, only polls of this one follow the other settings.
    fn set(&self, settings: LineSettings, with_rate: bool);

    /// The current numbers, as far as this instance knows them.
    fn status(&self) -> LineStatus;
}

/// One poll.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LineAsk {
    /// The place of the visitor's ticket.
    pub place: Option<LinePlace>,
    /// The lot of a new place: any number that the visitor can neither choose nor foresee.
    pub lot: u32,
    /// A digest of the client's key, by which its places are counted together.
    pub client: Option<u64>,
}

impl LineAsk {
    /// A poll for this place, or for a new one with this lot.
    pub const fn new(place: Option<LinePlace>, lot: u32) -> Self {
        Self { place, lot, client: None }
    }

    /// Sets the client of the poll.
    #[must_use]
    pub const fn of_client(mut self, client: u64) -> Self {
        self.client = Some(client);
        self
    }
}
