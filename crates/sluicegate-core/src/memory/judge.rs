//! What an ask comes to: whether it passes, what it changes, and the numbers of the answer.

use std::time::Duration;

use super::bucket::Bucket;
use crate::algorithm::{NEVER, Slot, State};
use crate::clock::micros;
use crate::decision::{Outcome, Standing};
use crate::store::{Ask, Mode};

/// Whether the ask gets what it wants; those that only give or take do always.
#[inline]
pub(super) fn passes(bucket: &Bucket, mode: Mode, slot: Slot, now_us: u64) -> bool {
    match mode {
        Mode::Spend | Mode::Peek => slot.opens_us <= now_us,
        Mode::Reserve { longest } => slot.opens_us != NEVER && turn_us(bucket, longest, slot) <= now_us,
        Mode::Refund | Mode::Return | Mode::Depart | Mode::Charge | Mode::Reset => true,
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

/// How long ago what is given back was spent; 0 if that is not known.
pub(super) fn spent_ago_us(ask: &Ask<'_>, now_us: u64) -> u64 {
    ask.receipt().map_or(0, |receipt| now_us.saturating_sub(receipt.at_us()))
}

/// The state after the ask, if it changes anything.
#[inline]
pub(super) fn change(
    bucket: &Bucket,
    state: State,
    ask: &Ask<'_>,
    now_us: u64,
    departs_us: u64,
) -> Option<State> {
    let rule = &bucket.rule;
    let after = match ask.mode() {
        Mode::Spend | Mode::Reserve { .. } => rule.spend(state, now_us, departs_us, ask.cost()),
        Mode::Charge => rule.charge(state, now_us, ask.cost()).0,
        Mode::Refund if bucket.never_had(ask) => return None,
        Mode::Refund => rule.refund(state, now_us, spent_ago_us(ask, now_us), ask.cost()),
        Mode::Reset => State::REST,
        Mode::Peek | Mode::Return | Mode::Depart => return None,
    };
    if ask.mode() == Mode::Charge || departs_us > now_us {
        bucket.reaches(after.until_us);
    }
    Some(after)
}

pub(super) fn outcome(passed: bool, slot: Slot) -> Outcome {
    match slot.opens_us {
        _ if passed => Outcome::Allowed,
        NEVER => Outcome::Impossible,
        _ => Outcome::Denied,
    }
}

/// What is left to say of a key.
pub(super) struct Reading {
    pub(super) remaining: u64,
    pub(super) reset_after_us: u64,
}

#[inline]
#[expect(clippy::too_many_arguments, reason = "one place that turns all that was found into numbers")]
pub(super) fn standing(
    at: (u8, u8),
    bucket: &Bucket,
    ask: &Ask<'_>,
    passed: bool,
    slot: Slot,
    reading: Reading,
    now_us: u64,
    slot_of: impl FnOnce(u64) -> Slot,
) -> Standing {
    let mode = ask.mode();
    let available_us = match mode {
        _ if passed && reading.remaining < bucket.capacity => slot_of(reading.remaining + 1).opens_us,
        _ if passed || slot.opens_us == NEVER => now_us,
        Mode::Reserve { longest } => turn_us(bucket, longest, slot),
        _ => slot.opens_us,
    };
    let available_after_us = available_us.saturating_sub(now_us);
    let spent = if passed && (mode.spends() || mode == Mode::Charge) { ask.cost() } else { 0 };
    Standing::new(at, passed, bucket.capacity, reading.remaining, reading.reset_after_us, available_after_us)
        .spending(spent)
}
