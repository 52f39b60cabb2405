//! The keys of a bucket that may owe more than a burst: [`Debtors`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of the filter: 512 bytes, which stay in the cache of a processor while they are asked.
const WORDS: usize = 64;

/// A Bloom filter of one hash: a key that ever owed more than a burst is always found, and a few others are found by mistake, one in a hundred
/// after 40 such keys. It takes no memory before the first of them, and forgets none.
#[derive(Default)]
pub(super) struct Debtors(OnceLock<Box<[AtomicU64; WORDS]>>);

impl Debtors {
    /// Adds the key with this hash.
    pub(super) fn add(&self, hash: u64) {
        let words = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
        let (word, bit) = spot(hash);
        // Relaxed, here and below: a thread that has an answer about the debt of a key sees its bit.
        if words[word].load(Ordering::Relaxed) & bit == 0 {
            words[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether the key with this hash may be one of them.
    #[inline]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = spot(hash);
        self.0.get().is_some_and(|words| words[word].load(Ordering::Relaxed) & bit != 0)
    }
}

/// The word of a hash, and its bit there.
#[inline]
fn spot(hash: u64) -> (usize, u64) {
    let word = usize::try_from(hash / 64 % WORDS as u64).unwrap_or(0);
    (word, 1 << (hash % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_were_added_are_found_and_few_others() {
        let debtors = Debtors::default();
        // As hashes are: all bits differ.
        let hash = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        assert!((0..1_000).all(|index| !debtors.may_have(hash(index))));
        (0..40).for_each(|index| debtors.add(hash(index)));
        assert!((0..40).all(|index| debtors.may_have(hash(index))));
        let others = (40..10_040).filter(|index| debtors.may_have(hash(*index))).count();
        assert!(others < 200, "{others} of 10,000");
    }
}
