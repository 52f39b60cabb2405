//! The valid passes: [`PassList`].
//!
//! # Which visitors are called when a pass is free
//! While all passes are out, visitors sleep long, and a newcomer would arrive before them. So each free pass calls one waiting visitor. After
//! each minute in which those that were called do not take it, it calls twice as many.
//!
//! # Memory
//! A pass that is out takes 16 bytes and about as many for its number; so does a pass that ended early, until it would have expired.

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::quality::RandomState;

use crate::line::places::AGAIN_US;

/// The time for which a free pass is kept for the visitor that it calls.
const CALLS_US: u64 = 60_000_000;

/// The number of doublings after which all visitors are called.
const DOUBLED: u64 = 20;

/// The passes that are out, if their number is bounded, and those that ended early.
#[derive(Debug)]
pub(super) struct PassList {
    most: Option<u64>,
    lasts_us: u64,
    /// The gate when all passes were last out, the moment of that, and the number of passes given since.
    full_gate: u64,
    full_us: u64,
    given: u64,
    /// The end of each pass, in the order in which they were given, with the number of its place.
    ends: VecDeque<(u64, u64)>,
    /// The numbers of the passes that are out.
    out: HashSet<u64, RandomState>,
    /// Passes that ended early, while their tickets still look valid.
    ended: HashMap<u64, u32, RandomState>,
    forget: VecDeque<(u64, u64)>,
}

impl PassList {
    /// No pass is out. `most` bounds the passes that are valid at once, each for `lasts_us` microseconds; without a bound passes are not
    /// counted.
    pub(super) fn new(most: Option<u64>, lasts_us: u64) -> Self {
        Self {
            most,
            lasts_us,
            full_gate: 0,
            full_us: 0,
            given: 0,
            ends: VecDeque::new(),
            out: HashSet::default(),
            ended: HashMap::default(),
            forget: VecDeque::new(),
        }
    }

    /// Sets another bound and another length; passes that are out end when they would have.
    pub(super) fn set(&mut self, most: Option<u64>, lasts_us: u64) {
        (self.most, self.lasts_us) = (most, lasts_us);
    }

    /// The number of passes that are out, if it is bounded.
    pub(super) fn count(&self) -> Option<u64> {
        self.most.map(|_| self.out.len() as u64)
    }

    /// Whether no further pass may be given now.
    pub(super) fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.out.len() as u64 >= most)
    }

    /// Whether free passes call no visitor, because no pass is free or their number is not bounded.
    pub(super) fn calls_nobody(&self) -> bool {
        self.most.is_none() || self.is_full()
    }

    /// The number of free passes; 0 if passes are not bounded.
    fn free(&self) -> u64 {
        self.most.map_or(0, |most| most.saturating_sub(self.out.len() as u64))
    }

    /// Notes that the gate stands here, and that calls are counted from now on.
    pub(super) fn stand(&mut self, gate: u64, now_us: u64) {
        (self.full_gate, self.full_us, self.given) = (gate, now_us, 0);
    }

    /// Notes that the gate has come here without calling a visitor.
    pub(super) fn skip(&mut self, gate: u64) {
        self.full_gate = self.full_gate.max(gate);
    }

    /// Ranks below it have been called for passes that were given since.
    fn calls_from(&self) -> u64 {
        self.full_gate.saturating_add(self.given)
    }

    /// Ranks below this one may be called: one for each free pass, and twice as many after each minute.
    pub(super) fn calls_below(&self, now_us: u64) -> u64 {
        if self.most.is_none() {
            return u64::MAX;
        }
        let doubled = (now_us.saturating_sub(self.full_us) / CALLS_US).min(DOUBLED);
        self.calls_from().saturating_add(self.free().saturating_mul(1 << doubled))
    }

    /// The time until there is a pass for this rank, if none ends early: the end of passes for all called and waiting visitors before it, or
    /// the minute in which as many are called for the free ones.
    pub(super) fn pass_after_us(&self, rank: u64, now_us: u64) -> u64 {
        let ahead = rank.saturating_sub(self.calls_from());
        let room_us = self.room_after_us(ahead, now_us);
        let free = self.free();
        if free == 0 {
            return room_us;
        }
        let doubled =
            (0..DOUBLED).find(|doubled| free.saturating_mul(1 << doubled) > ahead).unwrap_or(DOUBLED);
        let called_us = self.full_us.saturating_add(doubled.saturating_mul(CALLS_US));
        room_us.min(called_us.saturating_sub(now_us))
    }

    /// Gives a pass that is valid from `at_us` on. The number of passes must be bounded.
    pub(super) fn give(&mut self, number: u64, at_us: u64) {
        self.ends.push_back((at_us.saturating_add(self.lasts_us), number));
        self.out.insert(number);
        self.given = self.given.saturating_add(1);
    }

    /// Ends the pass of this place before its time. A second call changes nothing.
    pub(super) fn end(&mut self, number: u64, lot: u32, now_us: u64) {
        self.out.remove(&number);
        if self.ended.insert(number, lot).is_none() {
            // The ended pass must not be forgotten before its place, which would give the pass again.
            self.forget.push_back((now_us.saturating_add(self.lasts_us.max(AGAIN_US)), number));
        }
    }

    /// Whether the pass ended early. The lot has to match too, because another place may have the number after the line was lost.
    pub(super) fn has_ended(&self, number: u64, lot: u32) -> bool {
        self.ended.get(&number) == Some(&lot)
    }

    /// Forgets `steps` expired passes at most. Each pass is forgotten once.
    pub(super) fn advance(&mut self, now_us: u64, steps: u32) {
        for _ in 0..steps {
            let Some(number) = first_over(&mut self.ends, now_us) else { break };
            self.out.remove(&number);
        }
        while let Some(number) = first_over(&mut self.forget, now_us) {
            self.ended.remove(&number);
        }
    }

    /// The time until there is room for one more behind `ahead` others, if no pass ends early.
    fn room_after_us(&self, ahead: u64, now_us: u64) -> u64 {
        let Some(most) = self.most else { return 0 };
        let out = self.out.len() as u64;
        let Some(behind) = ahead.saturating_add(out).checked_sub(most) else { return 0 };
        // All passes that are out end once, and then the passes of the visitors that replaced them.
        let (rounds, which) = (behind / most.max(1), behind % most.max(1));
        let which = usize::try_from(which).unwrap_or(usize::MAX);
        let end_us =
            self.ends.get(which).map_or_else(|| now_us.saturating_add(self.lasts_us), |(end, _)| *end);
        end_us.saturating_sub(now_us).saturating_add(rounds.saturating_mul(self.lasts_us))
    }
}

/// Removes the first number that has expired.
fn first_over(ends: &mut VecDeque<(u64, u64)>, now_us: u64) -> Option<u64> {
    ends.front().filter(|(end_us, _)| *end_us <= now_us)?;
    ends.pop_front().map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_makes_room_when_it_ends_or_is_ended() {
        let mut passes = PassList::new(Some(2), 100);
        passes.give(7, 0);
        passes.give(8, 10);
        assert!(passes.is_full());
        assert_eq!([0, 1, 2].map(|ahead| passes.room_after_us(ahead, 20)), [80, 90, 180]);
        passes.end(8, 1, 20);
        passes.end(8, 1, 20);
        assert!(!passes.is_full() && passes.has_ended(8, 1) && !passes.has_ended(8, 2));
        passes.advance(100, 64);
        assert_eq!(passes.count(), Some(0));
        passes.advance(120, 64);
        assert!(passes.has_ended(8, 1));
        passes.advance(20 + AGAIN_US, 64);
        assert!(!passes.has_ended(8, 1) && passes.ends.is_empty() && passes.forget.is_empty());
    }

    #[test]
    fn a_free_pass_calls_one_visitor_and_twice_as_many_after_each_minute() {
        let mut passes = PassList::new(Some(2), 1_000 * CALLS_US);
        passes.stand(10, 0);
        passes.give(1, 0);
        let below = [0, CALLS_US - 1, CALLS_US, 3 * CALLS_US].map(|now_us| passes.calls_below(now_us));
        assert_eq!(below, [12, 12, 13, 19]);
        let after = [10, 11, 12, 13, 14, 15].map(|rank| passes.pass_after_us(rank, 5) / 1_000_000);
        assert_eq!(after, [0, 0, 59, 119, 119, 179]);
    }
}
