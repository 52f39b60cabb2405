//! The valid passes: [`Active`].
//!
//! # Which visitors are called when a pass is free
//! While all passes are out, visitors sleep long, and a newcomer would arrive before them. So the number of called ranks is
//! the number of free passes divided by the share of visitors that come; visitors behind these ranks have to wait. If the called visitors do
//! not come, twice as many are called each minute, and after twenty minutes all of them: no free pass is lost to sleepers.
//!
//! # Memory
//! A pass that is out takes 16 bytes and about as many for its number; so does a pass that ended early, until it would have expired.
//!
//! # Which of the called visitors come: [`ArrivalShare`]
//! Ranks are grouped into blocks of a quarter of a second. The last 40 blocks that are old enough count, so the share follows within ten
//! seconds; a block is old enough when three more were called after it. A held visitor counts when it comes, not when it enters. The share
//! is rounded down to 1024ths, so that the gate is too fast rather than too slow: a visitor that is called too early is held, and a turn
//! without a called visitor is lost.
//!
//! # Why silence is not absence: [`Silence`]
//! The gate moves by the clock, so an outage of a minute calls a minute's worth of ranks whose visitors could not come. If they counted as
//! absent, the share would fall to its minimum, the gate would run eight times as fast, and visitors behind them would
//! enter before those that were called first. Instead, the first poll after a silence puts the gate back, with the earlier share.

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

/// Counts the visitors that have come, by blocks of ranks.
///
/// A visitor that leaves sends no sign. The only sign is a rank that was called and has not come for a while, so the newest blocks do not
/// count yet.
#[derive(Clone, Debug)]
pub(super) struct ArrivalShare {
    /// The ranks in a block: about those of a quarter of a second.
    block: u64,
    /// The number of the first block that is counted.
    first: u64,
    came: VecDeque<u64>,
    /// The share that was last known.
    known: u64,
}

/// The newest blocks, whose visitors may still come: most visitors are early, but networks delay some.
const YOUNG: u64 = 3;

/// The number of blocks that count.
const COUNTED: u64 = 40;

/// The least share: ranks are called at most eight times as fast as the rate.
const LEAST: u64 = WHOLE / 8;

impl ArrivalShare {
    /// Begins at this rank, at a rate of `a_second` turns a second.
    pub(super) fn new(rank: u64, a_second: u64) -> Self {
        let block = (a_second / 4).max(8);
        Self { block, first: (rank / block).saturating_add(1), came: VecDeque::new(), known: WHOLE }
    }

    /// Returns the share for another rate.
    pub(super) fn changed(&self, rank: u64, a_second: u64) -> Self {
        Self::again(rank, self.known, a_second)
    }

    /// Begins again at this rank, with this share.
    pub(super) fn again(rank: u64, known: u64, a_second: u64) -> Self {
        Self { known, ..Self::new(rank, a_second) }
    }

    /// The share in 1024ths.
    pub(super) fn get(&self) -> u64 {
        self.known
    }

    /// Notes that the visitor of this rank has come for the first time since it was due.
    pub(super) fn came(&mut self, rank: u64) {
        let Some(at) = (rank / self.block).checked_sub(self.first) else { return };
        // Due ranks are at most a handful of blocks ahead of the called ones, so this does not grow long.
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if at >= self.came.len() && at < 65_536 {
            self.came.resize(at.saturating_add(1), 0);
        }
        if let Some(came) = self.came.get_mut(at) {
            *came = came.saturating_add(1);
        }
    }

    /// Notes that all ranks below this one were called.
    pub(super) fn called(&mut self, rank: u64) {
        let end = (rank / self.block).saturating_sub(YOUNG);
        let begin = end.saturating_sub(COUNTED);
        while self.first < begin {
            self.first = self.first.saturating_add(1);
            if self.came.pop_front().is_none() {
                self.first = begin;
            }
        }
        let counted = end.saturating_sub(self.first);
        if counted == 0 {
            return;
        }
        let came: u64 = self.came.iter().take(usize::try_from(counted).unwrap_or(usize::MAX)).sum();
        let called = counted.saturating_mul(self.block);
        self.known = (came.saturating_mul(WHOLE) / called).clamp(LEAST, WHOLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_known_after_a_few_seconds_and_follows() {
        let mut share = ArrivalShare::new(0, 100);
        for rank in 0..2_000 {
            if rank % 5 != 0 {
                share.came(rank);
            }
            share.called(rank + 1);
            assert!(rank < 200 || share.get() == WHOLE * 4 / 5, "{rank}: {}", share.get());
        }
        (2_000..8_000).for_each(|rank| share.called(rank));
        assert_eq!(share.get(), LEAST);
        assert!(share.came.len() < 50);
    }

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
