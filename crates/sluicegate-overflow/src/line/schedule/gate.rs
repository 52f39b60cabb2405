//! The gate of a line: how it moves, and when it goes back.
//!
//! # A control loop
//! The gate moves forward by the rate divided by the share that comes. If less than a second's worth of visitors is held, it runs up to an
//! eighth faster; if more, up to an eighth slower. So an error of up to an eighth in the share costs no turn, and holds no visitor
//! for more than two seconds.
//!
//! # When it goes back
//! | cause | by how much |
//! |---|---|
//! | silence, after which called visitors come back | to the first of them that asks |
//! | a rate that was raised and lowered by half or more | to where it was when the rate was raised |
//! | a called visitor that finds all near turns given | one to five seconds of ranks |
//!
//! When the gate passes ranks a second time, it skips those without a waiting visitor, sixteen with each poll.

use crate::line::active::ArrivalShare;
use crate::line::pace::WHOLE;
use crate::line::schedule::{HELD_US, Schedule};
use crate::line::{LineMode, LinePlace};

/// The span of near turns that should be given to held visitors.
const TARGET_US: u64 = 1_000_000;

/// A visitor counts as due this long before the gate reaches it, because appointments are rounded to whole seconds.
const SLACK_US: u64 = 350_000;

/// The number of ranks without a waiting visitor that the gate passes with one poll.
const SKIPPED: u32 = 16;

/// The gate goes back only by more than the ranks of this time, because polls within it come in any order.
const LEAST_BACK_US: u64 = 1_000_000;

/// The gate goes back by at most the ranks of this time, so that it is up again before held visitors have entered.
const MOST_BACK_US: u64 = 5_000_000;

impl Schedule {
    /// Moves the gate back to this rank, if it is beyond, and on from there with this share.
    pub(super) fn call_again(&mut self, rank: u64, share: u64) {
        if rank < self.gate {
            self.again_to = self.again_to.max(self.gate);
            (self.gate, self.gate_at_us) = (rank, self.time.now_us());
            self.share = ArrivalShare::again(rank, share, self.pace.turns_in(1));
        }
    }

    /// Handles a due visitor that finds all near turns given. If it was called long before the visitors that have them, the gate goes back
    /// to it, so that it is the next.
    pub(super) fn turned_away(&mut self, rank: u64) {
        let back = self.gate.saturating_sub(rank);
        let ranks_in = |us| self.pace.ranks_in(us, self.share.get());
        if back > ranks_in(LEAST_BACK_US) && back <= ranks_in(MOST_BACK_US) {
            self.back_to = self.back_to.max(self.gate);
            (self.gate, self.gate_at_us) = (rank, self.time.now_us());
        }
    }

    /// Moves the gate by the time that has gone by.
    pub(super) fn move_gate(&mut self) {
        let now_us = self.time.now_us();
        // Also without a bound on passes, because one may be set later.
        if self.active.stands_still() {
            self.active.stands(self.gate, now_us);
        }
        if self.is_open && self.mode == LineMode::Metered {
            self.skip();
        }
        let last = self.places.next_number().min(self.active.calls_below(now_us, self.share.get()));
        let held_us = self.pace.held_us(now_us);
        let stands = !self.is_open
            || self.mode != LineMode::Metered
            || self.gate >= last
            || held_us >= HELD_US
            || self.active.is_full();
        if stands {
            self.gate_at_us = now_us;
            return;
        }
        // The speed in 1024ths: up to an eighth faster if no visitor is held, and up to an eighth slower if as many are held as may be.
        // Turns that are far apart are given to the next visitor when they are due.
        let speed = if self.pace.span_us(1, WHOLE) > TARGET_US / 4 {
            WHOLE
        } else {
            (WHOLE + WHOLE / 8).saturating_sub(held_us.saturating_mul(WHOLE / 8) / TARGET_US)
        };
        let gone_us = now_us.saturating_sub(self.gate_at_us).saturating_mul(speed) / WHOLE;
        let ranks = self.pace.ranks_in(gone_us, self.share.get()).min(last.saturating_sub(self.gate));
        let used_us = self.pace.span_us(ranks, self.share.get()).saturating_mul(WHOLE) / speed;
        self.gate = self.gate.saturating_add(ranks);
        self.gate_at_us = self.gate_at_us.saturating_add(used_us).min(now_us);
        // Visitors that are called again come at their old appointments, so their absence says nothing.
        if self.gate >= self.again_to {
            self.share.called(self.gate);
        }
    }

    /// Skips ranks that are called again and at which no visitor waits.
    fn skip(&mut self) {
        let from = self.gate;
        for _ in 0..SKIPPED {
            if self.gate >= self.again_to.max(self.back_to) {
                break;
            }
            if self.gate < self.early {
                // The number behind a rank by lot is not known.
                break;
            } else if self.places.is_left(self.gate, &self.time) {
                self.gate = self.gate.saturating_add(1);
            } else {
                break;
            }
        }
        if self.gate > from {
            self.active.skips(self.gate);
            if from < self.again_to {
                // Such ranks say nothing about the share that comes.
                self.share = self.share.changed(self.gate, self.pace.turns_in(1));
            }
        }
    }

    /// Whether a place may take a turn now: the gate has passed its rank, or will within a third of a second.
    pub(super) fn is_due(&self, place: LinePlace) -> bool {
        let rank = place.rank(self.early);
        // No visitor is before the rank at the gate, so it need not wait for the gate.
        let ranks = rank.saturating_sub(self.gate);
        let (now_us, share) = (self.time.now_us(), self.share.get());
        if rank >= self.gate && rank >= self.active.calls_below(now_us, share) {
            return false;
        }
        let gone_us = now_us.saturating_sub(self.gate_at_us);
        ranks == 0 || self.pace.span_us(ranks.saturating_add(1), share) <= gone_us.saturating_add(SLACK_US)
    }
}
