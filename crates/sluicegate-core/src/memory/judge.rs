//! What an ask comes to: whether it passes, and the numbers of the answer.

use std::time::Duration;

use super::bucket::Bucket;
use crate::algorithm::{NEVER, Slot};
use crate::clock::micros;
use crate::decision::{Outcome, QuotaStatus};
use crate::store::Mode;

/// Whether an ask passes, and when it would.
#[derive(Clone, Copy)]
pub(super) struct Judged {
    pub(super) passed: bool,
    pub(super) slot: Slot,
    /// When the same ask would pass.
    pub(super) passes_us: u64,
}

impl Judged {
    /// Whether the ask gets what it wants; those that only give or take do always.
    #[inline]
    pub(super) fn new(bucket: &Bucket, mode: Mode, slot: Slot, now_us: u64) -> Self {
        let (passed, passes_us) = match mode {
            Mode::Spend | Mode::Peek => (slot.opens_us <= now_us, slot.opens_us),
            Mode::Reserve { longest } => {
                let passes_us = turn_us(bucket, longest, slot);
                (slot.opens_us != NEVER && passes_us <= now_us, passes_us)
            }
            Mode::Refund | Mode::Return | Mode::Depart | Mode::Charge | Mode::Reset => (true, now_us),
        };
        Self { passed, slot, passes_us }
    }

    /// One that will pass at `passes_us`, and not before.
    pub(super) fn refused_until(passes_us: u64) -> Self {
        Self { passed: false, slot: Slot { opens_us: passes_us, departs_us: passes_us }, passes_us }
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self.slot.opens_us {
            _ if self.passed => Outcome::Allowed,
            NEVER => Outcome::Impossible,
            _ => Outcome::Denied,
        }
    }
}

/// The earliest moment at which a turn that comes within `longest` can be had.
fn turn_us(bucket: &Bucket, longest: Duration, slot: Slot) -> u64 {
    let soonest_us = slot.departs_us.saturating_sub(micros(longest));
    // A full queue lets nobody wait outside of it.
    if bucket.rule.is_queue() { soonest_us.max(slot.opens_us) } else { soonest_us }
}

#[inline]
pub(super) fn delay(mode: Mode, slot: Slot, now_us: u64) -> u64 {
    if mode.spends() { slot.departs_us.saturating_sub(now_us) } else { 0 }
}

/// What is left to say of a key.
pub(super) struct Reading {
    pub(super) remaining: u64,
    pub(super) reset_after_us: u64,
}

/// Where a quota stands after an ask; `slot_of` says when a cost would pass now.
#[inline]
pub(super) fn standing(
    at: (u8, u8),
    bucket: &Bucket,
    judged: Judged,
    reading: &Reading,
    now_us: u64,
    slot_of: impl FnOnce(u64) -> Slot,
) -> QuotaStatus {
    let Judged { passed, slot, passes_us } = judged;
    let available_us = match passed {
        true if reading.remaining < bucket.capacity => slot_of(reading.remaining + 1).opens_us,
        false if slot.opens_us != NEVER => passes_us,
        _ => now_us,
    };
    let available_after_us = available_us.saturating_sub(now_us);
    QuotaStatus::new(
        at,
        passed,
        bucket.capacity,
        reading.remaining,
        reading.reset_after_us,
        available_after_us,
    )
}
