//! The answers of a line: a [`LinePlace`], a [`LineStanding`], a [`LineTurn`], or [`NoPlace`], at once or over a network ([`LineFuture`]).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sluicegate_core::StoreError;

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
    /// The most visitors that will enter up to and including this one: 1 is the next. Not known before the lots are drawn.
    pub position: Option<u64>,
    /// The longest wait until the turn, if the rate stays. Not known while the room is paused.
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

/// A place in the line of a room: its number in the order of arrival, and its lot.
///
/// ```
/// use sluicegate_overflow::line::LinePlace;
///
/// // Four came before the room opened: the one with the lowest lot is first.
/// let lots = [3 << 30, 1 << 30, 0, 2 << 30];
/// let ranks = [0, 1, 2, 3].map(|number| LinePlace::new(number, lots[number as usize]).rank(4));
/// assert_eq!(ranks, [3, 1, 0, 2]);
/// // The fifth came later, so its number is its rank.
/// assert_eq!(LinePlace::new(4, 0).rank(4), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LinePlace {
    /// The number of places that were taken before, since the line began. Visitors that enter without a place, while the room is open to all,
    /// have numbers of their own, above those of all places.
    pub number: u64,
    /// A number that was drawn when the place was taken.
    pub lot: u32,
}

impl LinePlace {
    /// The place of this number with this lot.
    pub const fn new(number: u64, lot: u32) -> Self {
        Self { number, lot }
    }

    /// The rank among all, where the first `early` numbers came before the room opened.
    ///
    /// These places are ranked by lot: `lot * early / 2^32`, so that nothing has to be sorted and a rank is known before all have come. Two
    /// places may have the same rank; both are then due at the same moment.
    #[must_use]
    pub const fn rank(self, early: u64) -> u64 {
        if self.number >= early {
            return self.number;
        }
        // Below `early`, because the lot is below 2^32; exact in 2^53 for two million early comers.
        (self.lot as u64).saturating_mul(early) >> 32
    }
}

/// The answer of a line: ready at once and unboxed in memory, boxed if it comes over a network.
pub struct LineFuture<T>(AnswerSource<T>);

enum AnswerSource<T> {
    Ready(Option<Result<T, StoreError>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> LineFuture<T> {
    /// A known answer.
    pub const fn ready(answer: T) -> Self {
        Self(AnswerSource::Ready(Some(Ok(answer))))
    }

    /// The answer if it is known, or the future that has to be polled.
    ///
    /// # Errors
    /// The future itself, if the answer is not known yet.
    pub fn now(self) -> Result<Result<T, StoreError>, Self> {
        match self.0 {
            AnswerSource::Ready(Some(answer)) => Ok(answer),
            pending => Err(Self(pending)),
        }
    }

    /// An answer that has to be awaited.
    pub fn boxed(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(AnswerSource::Boxed(Box::pin(answer)))
    }
}

/// # Panics
/// Panics when it is polled again after it was ready.
impl<T: Unpin> Future for LineFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            AnswerSource::Ready(answer) => {
                Poll::Ready(answer.take().expect("it is polled until it is ready, once"))
            }
            AnswerSource::Boxed(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for LineFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AnswerSource::Ready(_) => "LineFuture(ready)",
            AnswerSource::Boxed(_) => "LineFuture(..)",
        })
    }
}
