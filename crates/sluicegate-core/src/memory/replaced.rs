//! Replacements of a policy after which keys may still have to be handed over: [`Replacements`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use super::bucket::Bucket;
use crate::store::Inherit;

/// The replacements with keys that may still matter, the youngest first.
#[derive(Default)]
pub(super) struct Replacements {
    are_any: AtomicBool,
    each: ArcSwap<Vec<Arc<BucketReplacement>>>,
}

/// The replacement of a policy: the new buckets, and the old buckets that each continues.
pub(super) struct BucketReplacement {
    pub(super) heirs: Vec<Heir>,
    pub(super) how: Inherit,
    /// The moment as of which keys are handed over; `u64::MAX` for the moment of the request.
    pub(super) replaced_us: u64,
    /// The end of the last units that were spent before the replacement, under the old or the new policy.
    ends_us: u64,
}

/// A bucket, and the buckets of the previous policy that it continues: the most spent of them counts.
pub(super) struct Heir {
    pub(super) bucket: Arc<Bucket>,
    pub(super) follows: Vec<Arc<Bucket>>,
}

/// The most replacements after which a key without a request in between is still handed over; after more, its state is
/// forgotten. Each replacement that still matters costs a decision one more set to lock.
const GENERATIONS: usize = 32;

impl Replacements {
    /// The replacements of a policy that continues the owner of these, with `youngest` added.
    pub(super) fn followed_by(&self, youngest: BucketReplacement, now_us: u64) -> Self {
        let (before, youngest) = (self.each.load(), Arc::new(youngest));
        let each = std::iter::once(&youngest).chain(alive(&before, now_us));
        let each: Vec<_> = each.filter(|one| !one.heirs.is_empty()).take(GENERATIONS).cloned().collect();
        Self { are_any: AtomicBool::new(!each.is_empty()), each: ArcSwap::from_pointee(each) }
    }

    /// The way back: the old buckets as heirs of the buckets that continue them in the youngest replacement. They follow these only
    /// where spent units stay spent.
    pub(super) fn back_to(&self, old: &[Arc<Bucket>], how: Inherit) -> Option<BucketReplacement> {
        let each = self.each.load();
        let youngest = each.first()?;
        let heirs = old.iter().filter_map(|old| {
            let heirs = youngest.heirs.iter();
            let heirs = heirs.filter(|heir| heir.follows.iter().any(|follows| Arc::ptr_eq(follows, old)));
            let mut follows: Vec<_> = heirs.map(|heir| Arc::clone(&heir.bucket)).collect();
            if follows.is_empty() {
                return None;
            }
            follows.retain(|_| how == Inherit::Spent);
            Some(Heir { bucket: Arc::clone(old), follows })
        });
        let heirs: Vec<_> = heirs.collect();
        let back = BucketReplacement { heirs, how: Inherit::Spent, replaced_us: u64::MAX, ..**youngest };
        (!back.heirs.is_empty()).then_some(back)
    }

    /// Adds the youngest replacement.
    pub(super) fn add(&self, youngest: BucketReplacement, now_us: u64) {
        let youngest = Arc::new(youngest);
        self.each.rcu(|each| {
            let each = std::iter::once(&youngest).chain(alive(each, now_us));
            each.take(GENERATIONS).cloned().collect::<Vec<_>>()
        });
        self.are_any.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn are_any(&self) -> bool {
        // Relaxed: it is false only long after the last state that matters.
        self.are_any.load(Ordering::Relaxed)
    }

    /// The replacements that still matter. Drops the others and frees their memory.
    pub(super) fn alive(&self, now_us: u64) -> Arc<Vec<Arc<BucketReplacement>>> {
        if !self.are_any() {
            return Arc::default();
        }
        let each = self.each.load_full();
        let count = alive(&each, now_us).len();
        if count == each.len() {
            return each;
        }
        // Entries that another thread adds meanwhile stay; expired entries of its list are filtered out again.
        self.each.rcu(|each| alive(each, now_us).to_vec());
        if count == 0 {
            self.are_any.store(false, Ordering::Relaxed);
            // A replacement may have been added just before this write.
            let is_empty = self.each.load().is_empty();
            self.are_any.store(!is_empty, Ordering::Relaxed);
        }
        Arc::new(each[..count].to_vec())
    }
}

/// The replacements after which a key may still have to be handed over.
///
/// A younger one stays as long as an older one matters, because a key is handed over step by step; and all of them as long as the
/// youngest one: each mattered when the next one came.
fn alive(older: &[Arc<BucketReplacement>], now_us: u64) -> &[Arc<BucketReplacement>] {
    let last = match older {
        [youngest, ..] if youngest.is_alive(now_us) => Some(older.len() - 1),
        _ => older.iter().rposition(|older| older.is_alive(now_us)),
    };
    &older[..last.map_or(0, |last| last + 1)]
}

impl BucketReplacement {
    pub(super) fn new(heirs: Vec<Heir>, how: Inherit, replaced_us: u64) -> Self {
        let ends_us = heirs.iter().map(|heir| heir.ends_us(how, replaced_us)).max().unwrap_or(0);
        Self { heirs, how, replaced_us, ends_us }
    }

    fn is_alive(&self, now_us: u64) -> bool {
        now_us < self.ends_us
    }
}

impl Heir {
    /// The end of the last units that were spent before the replacement: in the old buckets, and in this one. Debts beyond the
    /// capacity of a sliding window are forgotten before, because they are not noted.
    fn ends_us(&self, how: Inherit, replaced_us: u64) -> u64 {
        let rule = &self.bucket.rules.own;
        let ends = self.follows.iter().map(|old| {
            let old_ends_us = replaced_us.saturating_add(old.longest_us()).max(old.furthest_us());
            let from = &old.rules.own;
            let units = from.drains_in(old_ends_us - replaced_us).unwrap_or(0).max(from.capacity());
            // Other strategies may leave less than nothing of the new capacity.
            let units = if how == Inherit::Spent { units } else { units.saturating_add(rule.capacity()) };
            let ends_us = match rule.log() {
                Some(_) => replaced_us.saturating_add(rule.longest_spend_us()),
                None => rule.holding(units, replaced_us).until_us,
            };
            ends_us.max(old_ends_us)
        });
        ends.max().unwrap_or(0)
    }

    /// Whether the bucket continues itself.
    pub(super) fn keeps(&self) -> bool {
        matches!(&self.follows[..], [old] if Arc::ptr_eq(old, &self.bucket))
    }
}
