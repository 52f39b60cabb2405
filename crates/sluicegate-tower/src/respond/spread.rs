//! Random additions to the waits of refused clients, so that they do not all come back at once.
//!
//! A wait only gets longer: after a shorter one, the client would be refused again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::respond::decided::ceil_seconds;

/// Returns the addition to a wait.
pub(crate) type Spread = Box<dyn Fn() -> Duration + Send + Sync>;

/// A random time from zero to `longest`, in whole seconds.
pub(crate) fn up_to(longest: Duration) -> Spread {
    let longest = longest.as_secs();
    // A client gains nothing by guessing it, and each new state has different keys.
    Box::new(move || Duration::from_secs(RandomState::new().hash_one(0) % longest.saturating_add(1)))
}

/// Whole seconds that are added to the wait of one refusal.
pub(crate) fn seconds(spread: Option<&Spread>) -> u64 {
    spread.map_or(0, |spread| ceil_seconds(spread()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_second_up_to_the_longest_comes_up_and_none_beyond_it() {
        let spread = up_to(Duration::from_millis(4_900));
        let seen: HashSet<u64> = (0..1_000).map(|_| seconds(Some(&spread))).collect();
        assert_eq!(seen, (0..=4).collect());
        assert_eq!(seconds(Some(&up_to(Duration::ZERO))), 0);
        assert_eq!(seconds(None), 0);
        seconds(Some(&up_to(Duration::MAX)));
    }
}
