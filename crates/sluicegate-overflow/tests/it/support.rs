//! A line and a room on a clock that is turned by hand.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::ConfigError;
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_overflow::line::{
    Line, LineAnswer, LineAsk, LineChange, LineFuture, LineHome, LinePlace, LineSettings, LineStanding,
    LineStatus, LineTurn, MemoryLine, NoPlace,
};
use sluicegate_overflow::{WaitingRoom, WaitingRoomBuilder};

/// A home that lets a test have the line that it opens.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Option<Arc<dyn Line>>>>);

impl LineHome for Kept {
    fn open(&self, settings: LineSettings, clock: Arc<dyn Clock>) -> Result<Arc<dyn Line>, ConfigError> {
        let line = MemoryLine::new().open(settings, clock)?;
        *self.0.lock().unwrap() = Some(Arc::clone(&line));
        Ok(line)
    }
}

/// The line of a room, polled by hand.
pub(crate) struct Polled {
    pub(crate) clock: ManualClock,
    pub(crate) room: WaitingRoom,
    line: Arc<dyn Line>,
    lots: Cell<u32>,
}

/// An hour after the epoch, so that a clock can be set back.
pub(crate) const START: Duration = Duration::from_secs(100_000);

impl Polled {
    pub(crate) fn new(rate: &str, settings: impl FnOnce(WaitingRoomBuilder) -> WaitingRoomBuilder) -> Self {
        let (clock, home) = (ManualClock::new(), Kept::default());
        clock.set(START);
        let builder = WaitingRoom::builder("sale", rate).clock(clock.clone());
        let room = settings(builder).build(home.clone()).unwrap();
        let line = home.0.lock().unwrap().take().unwrap();
        Self { clock, room, line, lots: Cell::new(0) }
    }

    pub(crate) fn after(&self, span: Duration) -> &Self {
        // Others ask meanwhile: a line of which nobody wants anything for long takes that for a step of its clock.
        let mut left = span;
        while !left.is_zero() {
            let step = left.min(Duration::from_secs(30));
            self.clock.advance(step);
            self.line.status();
            left -= step;
        }
        self
    }

    pub(crate) fn ask(&self, place: Option<LinePlace>) -> LineAnswer {
        self.ask_of(place, None)
    }

    pub(crate) fn ask_of(&self, place: Option<LinePlace>, client: Option<u64>) -> LineAnswer {
        // Lots go up and down, so that they are no order of arrival.
        self.lots.set(self.lots.get().wrapping_add(0x9e37_79b9));
        let ask = LineAsk::new(place, self.lots.get());
        known(self.line.ask(client.map_or(ask, |client| ask.of_client(client))))
    }

    pub(crate) fn waits(&self, place: Option<LinePlace>) -> LineStanding {
        match self.ask(place) {
            LineAnswer::Waiting(standing) => standing,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn turn(&self, place: Option<LinePlace>) -> LineTurn {
        match self.ask(place) {
            LineAnswer::Turn(turn) => turn,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn end(&self, place: LinePlace) {
        known(self.line.end(place));
    }

    pub(crate) fn change(&self, change: LineChange) {
        known(self.line.change(change));
    }

    pub(crate) fn status(&self) -> LineStatus {
        self.line.status()
    }
}

pub(crate) const FULL: LineAnswer = LineAnswer::NoPlace(NoPlace::Full);
pub(crate) const TOO_MANY: LineAnswer = LineAnswer::NoPlace(NoPlace::TooMany);

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn known<T>(answer: LineFuture<T>) -> T {
    answer.now().expect("memory answers at once").unwrap()
}
