//! The numbers of a room for a monitoring system.

use std::sync::atomic::Ordering;

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::line::LineMode;
use crate::room::WaitingRoom;

impl WaitingRoom {
    /// Exports the current numbers through the `metrics` facade, with the name of the room as the label `room`. The room does so by itself once
    /// a second while requests come; call this before a scrape for the numbers of a room that no request asks.
    ///
    /// | name | kind | counts |
    /// |---|---|---|
    /// | `waiting_room_waiting` | gauge | visitors that wait |
    /// | `waiting_room_active` | gauge | valid passes, if their number is bounded |
    /// | `waiting_room_rate` | gauge | visitors a second that may enter: 0 while the room is paused, +Inf while it is open |
    /// | `waiting_room_wait_seconds` | gauge | the longest wait of a newcomer; NaN while the room is paused |
    /// | `waiting_room_admitted_total` | counter | visitors that were let in |
    /// | `waiting_room_passed_over_total` | counter | places that were passed over |
    ///
    /// ```
    /// use sluicegate_overflow::WaitingRoom;
    /// use sluicegate_overflow::line::MemoryLine;
    ///
    /// let room = WaitingRoom::builder("sale", "1000/s").build(MemoryLine::new())?;
    /// room.measure();
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn measure(&self) {
        describe();
        let (room, now) = (self.name().to_owned(), self.status());
        // A gauge holds a float, exact below 2^53.
        let float = |count: u64| count as f64;
        gauge!("waiting_room_waiting", "room" => room.clone()).set(float(now.waiting));
        if let Some(active) = now.active {
            gauge!("waiting_room_active", "room" => room.clone()).set(float(active));
        }
        let rate = match now.mode {
            LineMode::Metered => float(now.rate.limit()) / now.rate.period().as_secs_f64(),
            LineMode::Paused => 0.0,
            LineMode::Open => f64::INFINITY,
        };
        gauge!("waiting_room_rate", "room" => room.clone()).set(rate);
        let wait = now.wait.map_or(f64::NAN, |wait| wait.as_secs_f64());
        gauge!("waiting_room_wait_seconds", "room" => room.clone()).set(wait);
        counter!("waiting_room_admitted_total", "room" => room.clone()).absolute(now.admitted);
        counter!("waiting_room_passed_over_total", "room" => room).absolute(now.passed_over);
    }

    /// Exports the numbers, unless that was done in this second.
    pub(crate) fn measure_seldom(&self) {
        let second = self.0.clock.now_us() / 1_000_000;
        // Relaxed: at worst two threads export them in the same second.
        if self.0.measured_second.swap(second, Ordering::Relaxed) != second {
            self.measure();
        }
    }
}

/// Describes the numbers, each time anew: a recorder may be installed at any time.
fn describe() {
    describe_gauge!("waiting_room_waiting", "Visitors that wait");
    describe_gauge!("waiting_room_active", "Valid passes, if their number is bounded");
    describe_gauge!(
        "waiting_room_rate",
        "Visitors a second that may enter: 0 while the room is paused, +Inf while it is open"
    );
    describe_gauge!(
        "waiting_room_wait_seconds",
        "The longest wait of a newcomer; NaN while the room is paused"
    );
    describe_counter!("waiting_room_admitted_total", "Visitors that were let in");
    describe_counter!("waiting_room_passed_over_total", "Places that were passed over");
}
