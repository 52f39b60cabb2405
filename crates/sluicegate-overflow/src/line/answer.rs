//! The answers of a line: a [`LineStanding`], a [`LineTurn`], or [`NoPlace`].

use std::time::Duration;

use crate::line::LinePlace;

/// The answer to a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineAnswer {
    /// The visitor has to wait.
    Waiting(LineStanding),
    /// The visitor may enter.
    Turn(LineTurn),
    /// There is no place for the visitor.
    NoPlace(NoPlace),
}

/// The standing of a visitor in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineStanding {
    /// The place; a new one if the line does not know the place of the poll.
    pub place: LinePlace,
    /// The number of visitors that will enter up to and including this one: 1 is the next. Not known before the lots are drawn.
    pub position: Option<u64>,
    /// The estimated wait until the turn. Not known while the room is paused.
    pub wait: Option<Duration>,
    /// The time until the room opens, if it is not open yet.
    pub opens_after: Option<Duration>,
    /// The time after which to ask again.
    pub ask_after: Duration,
}

impl LineStanding {
    /// The standing of a place that has to wait, without any other number.
    pub const fn new(place: LinePlace, ask_after: Duration) -> Self {
        Self { place, position: None, wait: None, opens_after: None, ask_after }
    }
}

/// The turn of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineTurn {
    /// The place that has the turn.
    pub place: LinePlace,
    /// The time for which the visitor is held until it may enter: two seconds at most.
    pub after: Duration,
    /// The length of the pass from then on. It is shorter for a visitor that asks again.
    pub lasts: Duration,
}

impl LineTurn {
    /// The turn of this place.
    pub const fn new(place: LinePlace, after: Duration, lasts: Duration) -> Self {
        Self { place, after, lasts }
    }
}

/// The reason why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoPlace {
    /// The line is full.
    Full,
    /// The client has as many places as it may have.
    TooMany,
}
