//! Counts different keys of the last minute: [`SeenLately`].

use std::collections::HashMap;
use std::sync::Mutex;

use sluicegate_core::key::KeyRef;

use sluicegate_core::support::lock;

const MINUTE_US: u64 = 60_000_000;
/// The most keys that are remembered: a page or an alert only needs to know whether there are many.
const MOST: usize = 1_024;

/// A full map is searched for old keys once in this time, because in a flood each key may be a new one.
const SEARCHED_EVERY_US: u64 = 1_000_000;

/// The digests of the keys that came in the last minute.
#[derive(Default)]
pub(super) struct SeenLately(Mutex<SeenKeys>);

#[derive(Default)]
struct SeenKeys {
    /// The time at which each key came last.
    last_us: HashMap<u64, u64>,
    searched_us: u64,
}

impl SeenLately {
    pub(super) fn see(&self, key: KeyRef<'_>, now_us: u64) {
        let key = key.digest();
        let mut seen = lock(&self.0);
        if let Some(last_us) = seen.last_us.get_mut(&key) {
            *last_us = now_us;
            return;
        }
        if seen.last_us.len() >= MOST && now_us.abs_diff(seen.searched_us) >= SEARCHED_EVERY_US {
            seen.forget(now_us);
        }
        if seen.last_us.len() < MOST {
            seen.last_us.insert(key, now_us);
        }
    }

    /// The number of keys that came in the last minute, at most 1,024.
    pub(super) fn count(&self, now_us: u64) -> usize {
        let mut seen = lock(&self.0);
        seen.forget(now_us);
        seen.last_us.len()
    }
}

impl SeenKeys {
    /// Forgets the keys that did not come in the last minute.
    fn forget(&mut self, now_us: u64) {
        self.searched_us = now_us;
        self.last_us.retain(|_, at_us| now_us.saturating_sub(*at_us) < MINUTE_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::key::Key;

    #[test]
    fn keys_count_once_for_a_minute_and_no_more_than_are_remembered() {
        let seen = SeenLately::default();
        for key in 0..3_000_u64 {
            seen.see(Key::from(key % 7).as_ref(), key);
        }
        assert_eq!((seen.count(3_000), seen.count(59_000_000), seen.count(61_000_000)), (7, 7, 0));
        for key in 0..3_000_u64 {
            seen.see(Key::from(key).as_ref(), 100_000_000);
        }
        assert_eq!(seen.count(100_000_000), MOST);
        assert_eq!(seen.count(159_500_000), MOST);
        seen.see(Key::from(8_888).as_ref(), 160_400_000); // not searched again within a second
        seen.see(Key::from(9_999).as_ref(), 161_000_000);
        assert_eq!(seen.count(161_000_000), 1, "old ones make room");
    }
}
