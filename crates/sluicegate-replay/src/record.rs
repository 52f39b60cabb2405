//! What is kept of a log to look for limits in: which key asked how much, and when.

use std::collections::HashSet;

use sluicegate_core::Key;

use crate::figures::PerKey;

/// An ask of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The number of the key in its row.
    pub(crate) key: u32,
    pub(crate) cost: u32,
    /// The number of the request.
    pub(crate) request: u32,
    pub(crate) at_us: u64,
}

/// How many of the heaviest keys of a row are kept whole when there is no room for all.
const HEAVIEST: usize = 10_000;

/// What is kept of one row.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) events: Vec<Event>,
    /// Of the keys that are not heavy, one in 2^level is kept.
    level: u32,
    heavy: HashSet<u32>,
}

impl Kept {
    /// For how many keys of its kind this one stands.
    pub(crate) fn weight(&self, key: u32) -> u64 {
        if self.level == 0 || self.heavy.contains(&key) { 1 } else { 1 << self.level }
    }

    fn keeps(&self, key: u32) -> bool {
        self.level == 0 || mixed(key).trailing_zeros() >= self.level || self.heavy.contains(&key)
    }

    /// Keeps half of the keys that are not heavy.
    fn halve(&mut self, per_key: &[PerKey]) {
        if self.level == 0 {
            let mut keys: Vec<u32> = (0..).zip(per_key).map(|(key, _)| key).collect();
            if keys.len() > HEAVIEST {
                let asked = |key: &u32| std::cmp::Reverse(per_key[*key as usize].asked);
                keys.select_nth_unstable_by_key(HEAVIEST, asked);
                keys.truncate(HEAVIEST);
            }
            self.heavy = keys.into_iter().collect();
        }
        self.level += 1;
        let mut events = std::mem::take(&mut self.events);
        events.retain(|event| self.keeps(event.key));
        events.shrink_to_fit();
        self.events = events;
    }
}

/// Numbers of keys come in the order of their first request; what is drawn shall not depend on that.
fn mixed(key: u32) -> u64 {
    let mut mixed = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What is kept of all rows, in bounded memory.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) rows: Vec<Kept>,
    /// The keys of each row by number, to replay all rows together.
    pub(crate) keys: Vec<Vec<Key>>,
    /// The status of each request; 0 if it is not known.
    pub(crate) statuses: Vec<u16>,
    /// How many events there is room for.
    most: usize,
    kept: usize,
    /// Whether all of the log is here.
    pub(crate) is_whole: bool,
}

impl Record {
    pub(crate) fn new(rows: usize, bytes: usize) -> Self {
        Self {
            rows: (0..rows).map(|_| Kept::default()).collect(),
            keys: vec![Vec::new(); rows],
            statuses: Vec::new(),
            most: bytes / size_of::<Event>(),
            kept: 0,
            is_whole: true,
        }
    }

    /// The number of the next request.
    pub(crate) fn request(&mut self, status: Option<u16>) -> u32 {
        let request = u32::try_from(self.statuses.len()).unwrap_or(u32::MAX);
        if self.is_whole {
            self.statuses.push(status.unwrap_or(0));
        }
        request
    }

    pub(crate) fn keep(&mut self, row: usize, event: Event, key: &Key, per_key: &[PerKey]) {
        let kept = &mut self.rows[row];
        if self.is_whole && self.keys[row].len() <= event.key as usize {
            self.keys[row].push(key.clone());
        }
        if !kept.keeps(event.key) {
            return;
        }
        kept.events.push(event);
        self.kept += 1;
        // Heavy keys are kept whatever they need.
        if self.kept > self.most && kept.level < 32 {
            kept.halve(per_key);
            self.kept = self.rows.iter().map(|kept| kept.events.len()).sum();
            self.is_whole = false;
            self.keys = Vec::new();
            self.statuses = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_stay_whole_and_a_sample_of_the_others() {
        let keys = 200_000_u32;
        let mut per_key = vec![PerKey::default(); keys as usize];
        for (key, known) in per_key.iter_mut().enumerate() {
            known.asked = if key < 100 { 50 } else { 1 };
        }
        let mut record = Record::new(1, 60_000 * size_of::<Event>());
        for key in (0..100).cycle().take(5_000).chain(100..keys) {
            let event = Event { key, cost: 1, request: 0, at_us: 0 };
            record.keep(0, event, &Key::from(key), &per_key);
        }
        let kept = &record.rows[0];
        assert!(!record.is_whole && kept.events.len() <= 60_000);
        assert_eq!(kept.events.iter().filter(|event| event.key < 100).count(), 5_000);
        let estimate: u64 = kept.events.iter().map(|event| kept.weight(event.key)).sum();
        assert!(estimate.abs_diff(5_000 + u64::from(keys) - 100) < 10_000, "{estimate}");
    }
}
