//! The answers of a line: a [`Standing`], a [`Turn`], or [`NoPlace`].

use std::time::Duration;

use crate::line::Place;

/// The answer to a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Not yet.
    Waiting(Standing),
    /// The visitor may enter.
    Turn(Turn),
    /// There is no place for the visitor.
    NoPlace(NoPlace),
}

/// Where a visitor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// The place, which is another one than that of the poll if that is not known.
    pub place: Place,
    /// How many are before it and itself, as far as they come: 1 is the next. Not known before the lots are drawn.
    pub position: Option<u64>,
    /// The estimated wait until the turn. Not known while the room is paused.
    pub wait: Option<Duration>,
    /// The time until the room opens, if it is not open yet.
    pub opens_after: Option<Duration>,
    /// When to ask again.
    pub ask_after: Duration,
}

impl Standing {
    /// A place that has to wait, of which nothing else is known.
    pub const fn new(place: Place, ask_after: Duration) -> Self {
        Self { place, position: None, wait: None, opens_after: None, ask_after }
    }
}

/// The turn of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Whose turn it is.
    pub place: Place,
    /// How long the visitor is held until it may enter: two seconds at most.
    pub after: Duration,
    /// How long the pass lasts from then on. It is shorter for a visitor that asks again.
    pub lasts: Duration,
}

impl Turn {
    /// The turn of this place.
    pub const fn new(place: Place, after: Duration, lasts: Duration) -> Self {
        Self { place, after, lasts }
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoPlace {
    /// The line is as long as it may be.
    Full,
    /// The client has as many places as it may have.
    TooMany,
}
