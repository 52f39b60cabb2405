//! Ranks that were called while no visitor asked: [`Silence`].
//!
//! # Why silence is not absence
//! The gate moves by the clock, so an outage of a minute calls a minute's worth of ranks whose visitors could not come. If they counted as
//! absent, the share would fall to its minimum, the gate would run eight times as fast, and visitors behind them would
//! enter before those that were called first. Instead, the first poll after a silence puts the gate back, with the earlier share.

use crate::line::pace::WHOLE;

/// The time after a silence in which visitors that were called during it come back: browsers and failed requests retry every few seconds.
const BACK_US: u64 = 10_000_000;

/// The ranks that were called while no visitor asked.
///
/// In a silence either all visitors have left the line, or no visitor could reach it: an outage, or a clock that stepped. The gate keeps
/// moving in both cases. A visitor that comes back from the second case has missed its turn through no fault of its own: the gate goes back to
/// its rank, so that visitors enter in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// The moment of the last poll; `gate` is where the gate was then.
    asked_us: u64,
    gate: u64,
    /// The share that came, as known then: during silence no visitor comes.
    share: u64,
    /// The share before the silence.
    share_before: u64,
    /// The ranks that were called in it, and the moment until which they count.
    from: u64,
    to: u64,
    until_us: u64,
}

impl Silence {
    /// No silence yet; it is measured from now on.
    pub(super) fn new(now_us: u64) -> Self {
        Self { asked_us: now_us, gate: 0, share: WHOLE, share_before: WHOLE, from: 0, to: 0, until_us: 0 }
    }

    /// Notes a poll, with the gate at this rank by now. A time longer than `usual_us` without polls is silence.
    pub(super) fn broken(&mut self, now_us: u64, gate: u64, usual_us: u64) {
        if now_us.saturating_sub(self.asked_us) > usual_us && gate > self.gate {
            self.from = if now_us < self.until_us { self.from.min(self.gate) } else { self.gate };
            self.share_before = self.share;
            (self.to, self.until_us) = (gate, now_us.saturating_add(BACK_US));
        }
    }

    /// Notes that a visitor has asked, with the gate at this rank and this share coming.
    pub(super) fn asked(&mut self, now_us: u64, gate: u64, share: u64) {
        (self.asked_us, self.gate, self.share) = (now_us, gate, share);
    }

    /// The share that came before it.
    pub(super) fn share_before(&self) -> u64 {
        self.share_before
    }

    /// Whether this rank was called in the silence.
    pub(super) fn has(&self, rank: u64, now_us: u64) -> bool {
        now_us < self.until_us && (self.from..self.to).contains(&rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_called_in_silence_counts_for_a_while() {
        let mut silence = Silence::new(0);
        silence.broken(1_000_000, 10, 2_000_000);
        assert!(!silence.has(5, 1_000_000), "it was not silent for long");
        silence.asked(1_000_000, 10, 900);
        silence.broken(9_000_000, 30, 2_000_000);
        silence.asked(9_000_000, 12, 128);
        assert_eq!(silence.share_before(), 900);
        assert_eq!([9, 10, 29, 30].map(|rank| silence.has(rank, 9_000_000)), [false, true, true, false]);
        // Another silence soon after is part of it.
        silence.broken(12_000_000, 40, 2_000_000);
        assert_eq!([9, 10, 39].map(|rank| silence.has(rank, 12_000_000)), [false, true, true]);
        assert!(!silence.has(20, 12_000_000 + BACK_US));
    }
}
