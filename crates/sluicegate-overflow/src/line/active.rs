//! The valid passes: [`Active`].
//!
//! # Which visitors are called when a pass is free
//! While all passes are out, visitors sleep long, and a newcomer would arrive before them. So the number of called ranks is
//! the number of free passes divided by the share of visitors that come; visitors behind these ranks have to wait. If the called visitors do
//! not come, twice as many are called each minute, and after twenty minutes all of them: no free pass is lost to sleepers.
//!
//! # Memory
//! A pass that is out takes 16 bytes and about as many for its number; so does a pass that ended early, until it would have expired.

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::quality::RandomState;

use crate::line::pace::WHOLE;
use crate::line::places::AGAIN_US;

/// The time for which an ended pass is kept for the visitor that it calls. After each such time, twice as many visitors are called.
const CALLS_US: u64 = 60_000_000;

/// The number of doublings after which all visitors are called.
const DOUBLED: u64 = 20;

/// The passes that are out, if their number is bounded, and those that ended early.
#[derive(Debug)]
pub(super) struct Active {
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

impl Active {
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
    pub(super) fn stands_still(&self) -> bool {
        self.most.is_none() || self.is_full()
    }

    /// The number of free passes; 0 if passes are not bounded.
    fn free(&self) -> u64 {
        self.most.map_or(0, |most| most.saturating_sub(self.out.len() as u64))
    }

    /// The number of doublings of called visitors since all passes were out, and the time since the last one.
    fn doubled(&self, now_us: u64) -> (u64, u64) {
        let gone_us = now_us.saturating_sub(self.full_us);
        let doubled = gone_us / CALLS_US;
        if doubled < DOUBLED { (doubled, gone_us % CALLS_US) } else { (DOUBLED, 0) }
    }

    /// Notes that all passes are out, and the gate stands here.
    pub(super) fn stands(&mut self, gate: u64, now_us: u64) {
        (self.full_gate, self.full_us, self.given) = (gate, now_us, 0);
    }

    /// Notes that the gate has come here without calling a visitor.
    pub(super) fn skips(&mut self, gate: u64) {
        self.full_gate = self.full_gate.max(gate);
    }

    /// Ranks below this one may be called: one for each pass that was free since the gate stood, and more for visitors that have left. Visitors
    /// that wait for passes ask seldom, so a newcomer would otherwise arrive before them.
    pub(super) fn calls_below(&self, now_us: u64, share: u64) -> u64 {
        if self.most.is_none() {
            return u64::MAX;
        }
        let free = self.free();
        let passes = self.given.saturating_add(free);
        // At most two ranks for a pass: the share that comes looks small while visitors sleep.
        let called = passes.saturating_mul(WHOLE) / share.max(WHOLE / 2);
        let (doubled, rest_us) = self.doubled(now_us);
        let most = free.saturating_mul(1 << doubled);
        let more = (most - free).saturating_add(most.saturating_mul(rest_us) / CALLS_US);
        self.full_gate.saturating_add(called).saturating_add(more)
    }

    /// The time until this rank may be called, if no other pass is given or ends.
    pub(super) fn calls_after_us(&self, rank: u64, now_us: u64, share: u64) -> u64 {
        let below = self.calls_below(now_us, share);
        let free = self.free();
        if rank < below || free == 0 {
            return 0;
        }
        // Within the current minute this is exact; in later minutes the rank is called sooner.
        let (doubled, _) = self.doubled(now_us);
        let ranks = rank.saturating_add(1).saturating_sub(below);
        ranks.saturating_mul(CALLS_US).div_ceil(free.saturating_mul(1 << doubled))
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
    pub(super) fn room_after_us(&self, ahead: u64, now_us: u64) -> u64 {
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
        let mut active = Active::new(Some(2), 100);
        active.give(7, 0);
        active.give(8, 10);
        assert!(active.is_full());
        assert_eq!([0, 1, 2].map(|ahead| active.room_after_us(ahead, 20)), [80, 90, 180]);
        active.end(8, 1, 20);
        active.end(8, 1, 20);
        assert!(!active.is_full() && active.has_ended(8, 1) && !active.has_ended(8, 2));
        active.advance(100, 64);
        assert_eq!(active.count(), Some(0));
        active.advance(120, 64);
        assert!(active.has_ended(8, 1));
        active.advance(20 + AGAIN_US, 64);
        assert!(!active.has_ended(8, 1) && active.ends.is_empty() && active.forget.is_empty());
    }
}
