//! The clock of a server, as far as its replies tell: [`ServerClock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::clock::micros;
use tokio::time::Instant;

/// The clock of a server: its time at a moment of this process.
///
/// A server writes its time into a reply after the call was sent and before the reply came. The estimate moves only as far as a reply
/// shows it to be wrong: so it is exact to the time that the fastest calls spend on their way, follows a clock that is set or drifts with the
/// next reply, and a reply that was late says nothing false.
pub(crate) struct ServerClock {
    /// A moment of this process, and the server's time then; 0 if there was no reply yet.
    begun: Instant,
    begun_us: AtomicU64,
}

impl ServerClock {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), begun_us: AtomicU64::new(0) }
    }

    /// The server's time at this moment, in microseconds.
    pub(crate) fn at(&self, moment: Instant) -> Option<u64> {
        // Relaxed, here and below: one number, which orders nothing else.
        let begun_us = self.begun_us.load(Ordering::Relaxed);
        (begun_us > 0).then(|| begun_us.saturating_add(self.since_us(moment)))
    }

    /// Notes that it was `server_us` there between these two moments.
    pub(crate) fn note(&self, sent: Instant, server_us: u64, received: Instant) {
        let [least, most] = [received, sent].map(|moment| server_us.saturating_sub(self.since_us(moment)));
        let known = self.begun_us.load(Ordering::Relaxed);
        // At first the least: a deadline that is too early by the way of a reply is that of the calls whose replies are late.
        let begun_us = if known == 0 { least } else { known.clamp(least, most.max(least)) };
        if begun_us != known {
            self.begun_us.store(begun_us, Ordering::Relaxed);
        }
    }

    fn since_us(&self, moment: Instant) -> u64 {
        micros(moment.checked_duration_since(self.begun).unwrap_or(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_to_the_way_of_the_fastest_call_and_follows_a_clock_that_is_set() {
        let clock = ServerClock::new();
        let at = |ms| clock.begun + Duration::from_millis(ms);
        assert_eq!(clock.at(at(1)), None);
        // (sent, the server's time, received), then the server's time at 1 s, in ms.
        for (sent, server, received, known) in [
            (10, 5_012, 15, 5_997),   // 2 ms there, 3 ms back
            (20, 5_021, 22, 5_999),   // 1 ms back: that much closer
            (30, 5_032, 90, 5_999),   // a slow reply tells nothing
            (100, 5_160, 160, 6_000), // a slow call neither, except that its reply came at once
            (200, 3_201, 202, 4_001), // set back by two seconds
            (300, 9_301, 302, 9_999), // and set forward
        ] {
            clock.note(at(sent), server * 1_000, at(received));
            assert_eq!(clock.at(at(1_000)), Some(known * 1_000), "after {server}");
        }
    }
}
