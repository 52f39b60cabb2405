//! The keys that came before the requests of a policy became unusual: [`KeyHistory`].

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use sluicegate_core::key::KeyRef;
use sluicegate_core::store::KnownKeys;

use super::sample::MINUTE;

/// The bits of a filter: 64 KiB.
const BITS: u64 = 1 << 19;
/// The bits that stand for a key.
const PER_KEY: u64 = 4;
/// A key that was away for one to two days is new when it comes again.
const DAY: u32 = 24 * 60 * MINUTE;
/// All keys are known before keys were remembered for an hour.
const LEARNING: u32 = 60 * MINUTE;

/// The keys of one to two days, in Bloom filters: a key that came is always found, and a few others are found by mistake.
///
/// Keys become known one to two minutes after they came, so that those of a beginning attack do not. During an alarm no key becomes known.
pub(super) struct KeyHistory {
    /// The keys of the current minute, and of the minute before.
    lately: [Filter; 2],
    /// Known keys: those of the current day, and of the day before.
    known: [Filter; 2],
    begun: u32,
    /// The slot in which the day began.
    day: u32,
}

#[derive(Clone)]
struct Filter(Box<[u64]>);

impl KeyHistory {
    pub(super) fn new(slot: u32) -> Self {
        let two = || [Filter::new(), Filter::new()];
        Self { lately: two(), known: two(), begun: slot, day: slot }
    }

    /// Records a request of the key with this digest.
    pub(super) fn see(&mut self, digest: u64) {
        self.lately[0].add(digest);
    }

    /// A minute begins.
    pub(super) fn turn(&mut self, slot: u32, is_unusual: bool) {
        let [lately, before] = &mut self.lately;
        if is_unusual {
            (*lately, *before) = (Filter::new(), Filter::new());
            return;
        }
        self.known[0].add_all(before);
        *before = std::mem::replace(lately, Filter::new());
        if slot.saturating_sub(self.day) >= DAY {
            let day = std::mem::replace(&mut self.known[0], Filter::new());
            (self.known[1], self.day) = (day, slot);
        }
    }

    /// Tests whether a key is known now; `None` while all keys are.
    pub(super) fn known(&self, slot: u32, digests: RandomState) -> Option<KnownKeys> {
        let mut known = self.known[0].clone();
        known.add_all(&self.known[1]);
        let is_known = move |key: KeyRef<'_>| known.has(digests.hash_one(key));
        (slot.saturating_sub(self.begun) >= LEARNING).then(|| Arc::new(is_known) as _)
    }
}

impl Filter {
    fn new() -> Self {
        Self(vec![0; usize::try_from(BITS / 64).unwrap_or(0)].into())
    }

    fn add(&mut self, digest: u64) {
        bits(digest).for_each(|(word, bit)| self.0[word] |= bit);
    }

    fn has(&self, digest: u64) -> bool {
        bits(digest).all(|(word, bit)| self.0[word] & bit != 0)
    }

    fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }
}

/// The words and bits of a key, all derived from two hashes (Kirsch, Mitzenmacher: "Less hashing, same performance", 2006).
fn bits(digest: u64) -> impl Iterator<Item = (usize, u64)> {
    let (one, two) = (digest & 0xFFFF_FFFF, digest >> 32 | 1);
    (0..PER_KEY).map(move |nth| {
        let at = (one + nth * two) % BITS;
        (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
    })
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Key;

    use super::*;

    /// The number of keys of a day that a history finds.
    fn taken(keys: u64) -> (u64, u64) {
        let (digests, mut history) = (RandomState::default(), KeyHistory::new(0));
        let digest = |index: u64| digests.hash_one(Key::from(index).as_ref());
        (0..keys).for_each(|index| history.see(digest(index)));
        (1..=2).for_each(|minute| history.turn(minute * MINUTE, false));
        let known = history.known(LEARNING, digests.clone()).expect("it has learned for an hour");
        let count = |from: u64, until: u64| {
            let all = (from..until).filter(|index| known(Key::from(*index).as_ref()));
            u64::try_from(all.count()).unwrap()
        };
        (count(0, keys), count(keys, keys + 10_000))
    }

    #[test]
    fn all_keys_that_came_are_known_and_one_in_a_hundred_others() {
        let (known, mistaken) = taken(50_000);
        assert_eq!(known, 50_000);
        assert!(mistaken < 200, "{mistaken} of 10,000");
    }

    #[test]
    fn the_keys_of_the_last_minute_and_of_an_alarm_are_not_known_and_those_of_yesterday_are() {
        let (digests, mut history) = (RandomState::default(), KeyHistory::new(0));
        let key = |name: &str| digests.hash_one(Key::from(name).as_ref());
        history.see(key("yesterday"));
        history.turn(MINUTE, false);
        history.turn(DAY, false);
        history.see(key("today"));
        history.turn(DAY + MINUTE, false);
        history.turn(DAY + 2 * MINUTE, false);
        history.see(key("a moment ago"));
        history.turn(DAY + 3 * MINUTE, false);
        history.turn(DAY + 4 * MINUTE, true);
        history.see(key("in the alarm"));
        history.turn(DAY + 5 * MINUTE, true);
        let known = history.known(DAY + 5 * MINUTE, digests.clone()).unwrap();
        let is_known = |name: &str| known(Key::from(name).as_ref());
        assert!(is_known("yesterday") && is_known("today"));
        assert!(!is_known("a moment ago") && !is_known("in the alarm"));
    }

    #[test]
    fn all_are_known_in_the_first_hour() {
        assert!(KeyHistory::new(7).known(7 + LEARNING - 1, RandomState::default()).is_none());
    }
}
