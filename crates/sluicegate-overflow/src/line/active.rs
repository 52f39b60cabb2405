//! The passes that are good: [`Active`].

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::quality::RandomState;

use crate::line::book::AGAIN_US;

/// Passes that are out, where their number is bounded, and those that ended before their time.
#[derive(Debug)]
pub(super) struct Active {
    most: Option<u64>,
    lasts_us: u64,
    /// When each of them ends, in the order in which they were given, with the number of its place.
    ends: VecDeque<(u64, u64)>,
    /// The numbers of those that are out.
    out: HashSet<u64, RandomState>,
    /// Those that ended early, for as long as their tickets look good.
    ended: HashMap<u64, u32, RandomState>,
    forget: VecDeque<(u64, u64)>,
}

impl Active {
    pub(super) fn new(most: Option<u64>, lasts_us: u64) -> Self {
        Self {
            most,
            lasts_us,
            ends: VecDeque::new(),
            out: HashSet::default(),
            ended: HashMap::default(),
            forget: VecDeque::new(),
        }
    }

    /// How many are out, if that is bounded.
    pub(super) fn count(&self) -> Option<u64> {
        self.most.map(|_| self.out.len() as u64)
    }

    pub(super) fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.out.len() as u64 >= most)
    }

    /// A pass is good from `at_us` on. Only for where their number is bounded.
    pub(super) fn give(&mut self, number: u64, at_us: u64) {
        self.ends.push_back((at_us.saturating_add(self.lasts_us), number));
        self.out.insert(number);
    }

    pub(super) fn end(&mut self, number: u64, lot: u32, now_us: u64) {
        self.out.remove(&number);
        if self.ended.insert(number, lot).is_none() {
            // Not before its place is forgotten, which would give it again.
            self.forget.push_back((now_us.saturating_add(self.lasts_us.max(AGAIN_US)), number));
        }
    }

    pub(super) fn has_ended(&self, number: u64, lot: u32) -> bool {
        self.ended.get(&number) == Some(&lot)
    }

    /// Forgets what is over. Each pass is forgotten once.
    pub(super) fn advance(&mut self, now_us: u64) {
        while let Some(number) = first_over(&mut self.ends, now_us) {
            self.out.remove(&number);
        }
        while let Some(number) = first_over(&mut self.forget, now_us) {
            self.ended.remove(&number);
        }
    }

    /// How far away the moment is at which there is room for one more behind `ahead` others, if no pass ends early.
    pub(super) fn room_after_us(&self, ahead: u64, now_us: u64) -> u64 {
        let Some(most) = self.most else { return 0 };
        let out = self.out.len() as u64;
        let Some(behind) = ahead.saturating_add(out).checked_sub(most) else { return 0 };
        // All that are out end once, and then those that came for them.
        let (rounds, which) = (behind / most.max(1), behind % most.max(1));
        let which = usize::try_from(which).unwrap_or(usize::MAX);
        let end_us =
            self.ends.get(which).map_or_else(|| now_us.saturating_add(self.lasts_us), |(end, _)| *end);
        end_us.saturating_sub(now_us).saturating_add(rounds.saturating_mul(self.lasts_us))
    }
}

/// Takes the first number off whose time has come.
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
        active.advance(100);
        assert_eq!(active.count(), Some(0));
        active.advance(120);
        assert!(active.has_ended(8, 1));
        active.advance(20 + AGAIN_US);
        assert!(!active.has_ended(8, 1) && active.ends.is_empty() && active.forget.is_empty());
    }
}
