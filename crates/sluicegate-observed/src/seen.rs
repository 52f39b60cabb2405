//! Counts different keys of the last minute: [`SeenLately`].

use std::collections::HashMap;
use std::sync::Mutex;

use sluicegate_core::key::KeyRef;

use super::lock::lock;

const MINUTE_US: u64 = 60_000_000;
/// The most keys that are remembered: a page or an alert only needs to know whether there are many.
const MOST: usize = 1_024;

/// The digests of the keys that came in the last minute, with the time at which each came last.
#[derive(Default)]
pub(super) struct SeenLately(Mutex<HashMap<u64, u64>>);

impl SeenLately {
    pub(super) fn see(&self, key: KeyRef<'_>, now_us: u64) {
        let mut seen = lock(&self.0);
        let key = key.digest();
        if seen.len() >= MOST && !seen.contains_key(&key) {
            forget(&mut seen, now_us);
        }
        if seen.len() < MOST || seen.contains_key(&key) {
            seen.insert(key, now_us);
        }
    }

    /// The number of keys that came in the last minute, at most 1,024.
    pub(super) fn count(&self, now_us: u64) -> usize {
        let mut seen = lock(&self.0);
        forget(&mut seen, now_us);
        seen.len()
    }
}

fn forget(seen: &mut HashMap<u64, u64>, now_us: u64) {
    seen.retain(|_, at_us| now_us.saturating_sub(*at_us) < MINUTE_US);
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
        seen.see(Key::from(9_999).as_ref(), 161_000_000);
        assert_eq!(seen.count(161_000_000), 1, "old ones make room");
    }
}
