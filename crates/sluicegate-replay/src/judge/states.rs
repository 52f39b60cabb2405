//! Decides by numbers of keys instead of keys: [`StateTables`].
//!
//! # Where they are used
//! Logs of servers nearly always allow it: the policies refuse at once, have no suspensions, do not count rejected requests, keep no logs
//! of moments and have no bound on their keys, keys start with a whole burst, and the rules give nothing back. If one policy is of another
//! kind, or is shared by two rules, an [`Evaluator`](crate::judge::evaluator::Evaluator) decides everything, because requests are decided as wholes.
//!
//! # Memory
//! 32 bytes for each quota of a key, in a list by the number of the key in its row: no key has to be searched, none is forgotten, and two
//! quotas of one key are neighbours.

use std::hash::{BuildHasher, Hash};

use sluicegate_core::algorithm::{NEVER, Rule, State};
use sluicegate_core::{OnExceeded, Policy};

use crate::judge::evaluator::Verdict;
use crate::judge::order::NumberedAsk;
use crate::replay::WithinSecond;

/// A state for each key and quota of each row, once for each way to treat whole seconds.
///
/// A store finds each key by its hash. Keys of a replay have numbers, so there is nothing to search, and both ways of a key are in one
/// place: deciding a log in both costs hardly more than in one. The rules decide, as in every store.
#[derive(Debug)]
pub(super) struct StateTables(Vec<StateTable>);

/// The states of a row. The states of a key are together, one for each way and quota.
#[derive(Debug)]
struct StateTable {
    /// One rule for each quota of the policy.
    rules: Vec<Rule>,
    /// Ordered by key, then by way, then by quota; as long as the highest number of a key that was decided.
    states: Vec<State>,
    /// Whether it is asked whatever the others refuse.
    is_alone: bool,
}

/// The number of ways to treat whole seconds: spread and together. Each has its own states, because one may refuse what the other admits.
const WAYS: usize = 2;

impl StateTables {
    /// State tables for these policies, one per row; `None` if the states alone cannot decide.
    pub(super) fn of<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Option<Self> {
        let mut names = Vec::new();
        let book = |policy: &'a Policy| {
            // Rows of one policy share their keys, and have numbers of their own for them.
            let is_shared = names.contains(&policy.name());
            names.push(policy.name());
            let rules = policy.quotas().iter().map(|quota| *quota.rule()).collect();
            (is_plain(policy) && !is_shared).then_some(StateTable {
                rules,
                states: Vec::new(),
                is_alone: false,
            })
        };
        policies.into_iter().map(book).collect::<Option<_>>().map(Self)
    }

    /// Decides a request: the policies that are enforced together, then each that is only tried out.
    ///
    /// `now_us` is in microseconds since the Unix epoch and never goes back within one way. Enforced policies are looked at first and spent
    /// only if all of them have room, so that a refused request spends nothing. `verdicts` has as many places as `asks`.
    pub(super) fn decide(
        &mut self,
        within: WithinSecond,
        now_us: u64,
        asks: &[NumberedAsk],
        verdicts: &mut [Verdict],
    ) {
        let way = match within {
            WithinSecond::Spread => 0,
            WithinSecond::Together => 1,
        };
        let mut passes = true;
        for (ask, verdict) in asks.iter().zip(&mut *verdicts).filter(|(ask, _)| ask.is_enforced) {
            *verdict = self.book(ask).verdict(way, ask, now_us);
            passes &= *verdict == Verdict::Room;
        }
        for (ask, verdict) in asks.iter().zip(verdicts) {
            if !ask.is_enforced {
                let is_asked = passes || self.book(ask).is_alone;
                *verdict =
                    if is_asked { self.book(ask).verdict(way, ask, now_us) } else { Verdict::NotAsked };
            }
            if *verdict == Verdict::Room && (passes || self.book(ask).is_alone) {
                self.book(ask).spend(way, ask, now_us);
            }
        }
    }

    /// Asks a row whatever the others refuse.
    pub(super) fn decide_alone(&mut self, row: usize) {
        self.0[row].is_alone = true;
    }

    /// A number out of the state of each key that is asked for, to bring the states into the cache.
    pub(super) fn glance(&self, asks: &[NumberedAsk]) -> u64 {
        asks.iter().fold(0, |sum, ask| {
            let StateTable { rules, states, .. } = &self.0[ask.row as usize];
            // The first and the last: a single quota has no others, and they may be in two lines of memory.
            let (begin, length) = (ask.key as usize * WAYS * rules.len(), WAYS * rules.len());
            let of = |place| states.get(place).map_or(0, |state: &State| state.until_us);
            sum ^ of(begin) ^ of(begin + length - 1)
        })
    }

    /// Forgets what all keys have spent.
    ///
    /// The lists keep their memory: a search for a limit decides thousands of keys one after the other, each from rest.
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(|book| book.states.clear());
    }

    /// The states of the row that is asked.
    fn book(&mut self, ask: &NumberedAsk) -> &mut StateTable {
        &mut self.0[ask.row as usize]
    }
}

/// Whether the states of its quotas alone decide on a request: no logs, no turns, no remembered refusals, no newcomers, and no bound on its
/// keys.
fn is_plain(policy: &Policy) -> bool {
    let is_state = |rule: &Rule| rule.log().is_none() && !rule.is_queue() && !rule.begins();
    policy.on_exceeded() == OnExceeded::Deny
        && policy.suspension().is_none()
        && !policy.counts_rejected()
        && policy.table_size().is_none()
        && policy.quotas().iter().all(|quota| is_state(quota.rule()))
}

impl StateTable {
    /// The states of a key in one way.
    #[inline]
    fn states(&mut self, way: usize, key: u32) -> (&[Rule], &mut [State]) {
        let quotas = self.rules.len();
        let begin = (key as usize * WAYS + way) * quotas;
        if self.states.len() < begin + quotas {
            self.states.resize((key as usize + 1) * WAYS * quotas, State::REST);
        }
        (&self.rules, &mut self.states[begin..begin + quotas])
    }

    /// Whether the quotas have room for the cost, and the wait until they have. The quota with the longest wait decides; if one can never
    /// have room, no wait helps. No state changes.
    #[inline]
    fn verdict(&mut self, way: usize, ask: &NumberedAsk, now_us: u64) -> Verdict {
        let (rules, states) = self.states(way, ask.key);
        let opens =
            rules.iter().zip(states).map(|(rule, state)| rule.slot(*state, now_us, ask.cost).opens_us);
        match opens.max().unwrap_or(now_us) {
            NEVER => Verdict::Rejected(None),
            opens_us if opens_us > now_us => Verdict::Rejected(Some(opens_us - now_us)),
            _ => Verdict::Room,
        }
    }

    /// Spends under all quotas, which must have had room at this moment.
    #[inline]
    fn spend(&mut self, way: usize, ask: &NumberedAsk, now_us: u64) {
        let (rules, states) = self.states(way, ask.key);
        for (rule, state) in rules.iter().zip(states) {
            *state = rule.spend(*state, now_us, now_us, ask.cost);
        }
    }
}

// Numbers that are found by a hash, each in one place: [`Slots`].
//
// # Source
// Open addressing with linear probing (Knuth, The Art of Computer Programming, volume 3, section 6.4), over a power of two of slots.
// Nothing is ever removed, so no slot needs a mark for removed entries.

/// A table of numbers, each beside a small value that identifies it.
///
/// With a hundred rules the tables of all rows are far larger than the caches of a processor, so each search waits for memory. Here a
/// search reads one place, and [`glance`](Self::glance) begins the searches of a batch before the first of them is needed. A table of the
/// library reads two places, one after the other, and cannot begin the first read in advance.
///
/// # Memory
/// At least a quarter of the slots stays free, and at most five eighths are free after widening: 1.3 to 2.7 slots a number.
#[derive(Debug, Default)]
pub(super) struct Slots<K> {
    /// A power of two of slots, or none. A number is in the first slot that was free, starting at the one that its hash names; the first
    /// slot follows the last.
    slots: Vec<TableSlot<K>>,
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct TableSlot<K> {
    number: u32,
    known_by: K,
}

/// Marks a free slot. No number is ever that high, because its table would not fit into any memory.
const FREE: u32 = u32::MAX;

/// The least number of slots.
const LEAST: usize = 16;

impl<K: Copy + Default> Slots<K> {
    /// A number out of the slot that is read first for this hash.
    #[inline]
    pub(super) fn glance(&self, hash: usize) -> u32 {
        self.slots.get(hash & self.slots.len().wrapping_sub(1)).map_or(0, |slot| slot.number)
    }

    /// The number with this hash for which `is_it` is true; otherwise the slot for it, unless the table [is full](Self::is_full).
    #[inline]
    pub(super) fn find(&self, hash: usize, is_it: impl Fn(u32, K) -> bool) -> Result<u32, usize> {
        let last = self.slots.len() - 1;
        let mut place = hash & last;
        loop {
            match self.slots[place] {
                TableSlot { number: FREE, .. } => return Err(place),
                TableSlot { number, known_by } if is_it(number, known_by) => return Ok(number),
                _ => place = (place + 1) & last,
            }
        }
    }

    /// Puts a number into the slot that was found for it.
    #[inline]
    pub(super) fn put(&mut self, place: usize, number: u32, known_by: K) {
        self.slots[place] = TableSlot { number, known_by };
        self.taken += 1;
    }

    /// Whether it has to be widened before another number can be searched.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.taken * 4 >= self.slots.len() * 3
    }

    /// Doubles the slots, and puts in all numbers from 0 on by their hashes. The old slots are freed before the new ones are allocated.
    #[cold]
    pub(super) fn widen(&mut self, all: impl Iterator<Item = (usize, K)>) {
        let length = (self.slots.len() * 2).max(LEAST);
        self.slots = Vec::new();
        self.slots.resize(length, TableSlot { number: FREE, known_by: K::default() });
        self.taken = 0;
        for (number, (hash, known_by)) in (0..).zip(all) {
            if let Err(place) = self.find(hash, |_, _| false) {
                self.put(place, number, known_by);
            }
        }
    }
}

/// The hash by which a number is found.
#[inline]
pub(super) fn hash_of(hasher: &impl BuildHasher, known_by: impl Hash) -> usize {
    usize::try_from(hasher.hash_one(known_by)).unwrap_or(usize::MAX)
}

/// The number of an entry that this many came before.
pub(super) fn next_number(before: usize) -> u32 {
    u32::try_from(before).unwrap_or(FREE).min(FREE - 1)
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Key;
    use sluicegate_core::policy::PolicyMode;

    use super::*;
    use crate::judge::evaluator::{Evaluator, RowAsk};
    use crate::judge::random::TestRandom;
    use crate::read::OWN_OF_ROW;

    const POLICIES: [&[(&str, &str)]; 4] = [
        &[("gcra", "3/s burst 5")],
        &[("fixed-window", "4/s"), ("token-bucket", "7/3s burst 2")],
        &[("sliding-counter", "9/2s"), ("gcra", "1/s burst 4")],
        &[
            ("fixed-window-from-first-hit", "3/s"),
            ("token-bucket-interval", "3/s"),
            ("token-bucket-aligned", "5/2s"),
        ],
    ];

    fn policy(row: usize, (algorithm, quota): (&str, &str)) -> Policy {
        let algorithm = algorithm.parse().unwrap();
        Policy::builder(format!("p{row}"), algorithm, quota).and("40/min").build().unwrap()
    }

    #[test]
    fn books_decide_as_a_store_does() {
        let mut random = TestRandom(7);
        let mut rejected = 0;
        for policies in POLICIES {
            let policies: Vec<Policy> =
                policies.iter().enumerate().map(|(row, policy)| self::policy(row, *policy)).collect();
            let mut tables = StateTables::of(&policies).expect("each is plain");
            let evaluators = [(); 2].map(|()| Evaluator::new(&policies).unwrap());
            let mut now_us = 1_000_000_000;
            for step in 0..20_000 {
                now_us += match random.below(5) {
                    0 => 0,
                    1 => 1,
                    2 => 40_000,
                    3 => 300_000,
                    _ => 2_000_000,
                };
                // Some costs never fit.
                let asked: Vec<usize> =
                    (0..policies.len()).filter(|row| *row == 0 || random.below(2) == 0).collect();
                let asks: Vec<NumberedAsk> = asked
                    .into_iter()
                    .map(|row| NumberedAsk {
                        row: u32::try_from(row).unwrap(),
                        key: u32::try_from(random.below(5)).unwrap(),
                        cost: 1 + random.below(7) * random.below(2),
                        is_enforced: random.below(4) > 0,
                        quotas: OWN_OF_ROW,
                    })
                    .collect();
                let named: Vec<RowAsk> = asks
                    .iter()
                    .map(|ask| RowAsk {
                        row: ask.row as usize,
                        key: Key::from(u64::from(ask.key)),
                        cost: ask.cost,
                        is_enforced: ask.is_enforced,
                        quotas: None,
                    })
                    .collect();
                let (mut ours, mut theirs) =
                    (vec![Verdict::NotAsked; asks.len()], vec![Verdict::NotAsked; asks.len()]);
                // Requests of one way do not affect those of the other.
                let (within, evaluator) = match random.below(2) {
                    0 => (WithinSecond::Spread, &evaluators[0]),
                    _ => (WithinSecond::Together, &evaluators[1]),
                };
                tables.decide(within, now_us, &asks, &mut ours);
                evaluator.decide(now_us, &named, |_| false, &mut theirs);
                assert_eq!(ours, theirs, "{policies:?}, step {step}: {asks:?}");
                rejected += ours.iter().filter(|verdict| matches!(verdict, Verdict::Rejected(_))).count();
            }
        }
        assert!(rejected > 20_000, "{rejected}");
    }

    #[test]
    fn where_more_than_states_decides_or_rows_share_a_policy_there_are_no_books() {
        let plain = || Policy::gcra("p", "5/min");
        assert!(StateTables::of(&[plain().mode(PolicyMode::Shadow).build().unwrap()]).is_some());
        for policy in [
            plain().table_size(10),
            plain().count_rejected(),
            plain().suspend(3, "1min", "5min"),
            plain().on_exceeded("wait 2s".parse().unwrap()),
            Policy::sliding_log("p", "5/min"),
            Policy::leaky_queue("p", "5/min"),
        ] {
            let policy = policy.build().unwrap();
            assert!(StateTables::of([&policy]).is_none(), "{policy}");
        }
        let one = plain().build().unwrap();
        assert!(StateTables::of([&one, &one]).is_none());
    }
}

#[cfg(test)]
mod slots_tests {
    use super::*;

    fn number_of(slots: &mut Slots<u32>, (hash, known_by): (usize, u32), all: &mut Vec<(usize, u32)>) -> u32 {
        if slots.is_full() {
            slots.widen(all.iter().copied());
        }
        slots.find(hash, |_, known| known == known_by).unwrap_or_else(|place| {
            let number = u32::try_from(all.len()).unwrap();
            slots.put(place, number, known_by);
            all.push((hash, known_by));
            number
        })
    }

    #[test]
    fn a_number_is_found_again_whatever_its_hash_is() {
        for hash_of in [|_| 0, |_| usize::MAX, |known: u32| known as usize, |known| known as usize % 7] {
            let (mut slots, mut all) = (Slots::default(), Vec::new());
            for round in 0..2 {
                for known in 0..300 {
                    let number = number_of(&mut slots, (hash_of(known), known), &mut all);
                    assert_eq!(number, known, "round {round}");
                }
            }
            assert_eq!((all.len(), slots.slots.len(), slots.taken), (300, 512, 300));
        }
    }

    #[test]
    fn a_glance_sees_the_first_slot_of_a_hash() {
        let (mut slots, mut all) = (Slots::default(), Vec::new());
        assert_eq!(slots.glance(7), 0, "there is none yet");
        number_of(&mut slots, (7, 1), &mut all);
        number_of(&mut slots, (7, 2), &mut all);
        assert_eq!([6, 7, 8, 23].map(|hash| slots.glance(hash)), [FREE, 0, 1, 0]);
    }
}
