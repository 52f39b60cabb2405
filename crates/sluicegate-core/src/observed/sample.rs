//! One decision in 64, by chance: [`one_in_64`].

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// True one time in 64. By chance and not in turn, or of two clients that take turns one would never be looked at.
#[inline]
pub(super) fn one_in_64() -> bool {
    // A thread that ends looks at nothing.
    RANDOM
        .try_with(|random| {
            let mut next = random.get();
            if next == 0 {
                next = RandomState::new().hash_one(0) | 1;
            }
            // Marsaglia's xorshift, which is never 0.
            next ^= next << 13;
            next ^= next >> 7;
            next ^= next << 17;
            random.set(next);
            next >> 58 == 0
        })
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_in_64_is_taken_of_each_that_take_turns() {
        let mut taken = [0; 2];
        for turn in 0..128_000 {
            taken[turn % 2] += u32::from(one_in_64());
        }
        // A thousand each, and thirty are one standard deviation.
        assert!(taken.iter().all(|taken| (700..1_300).contains(taken)), "{taken:?}");
    }
}
