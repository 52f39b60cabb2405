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
    pub(super) replaced_us: u64,
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

    /// The old buckets, as heirs of the buckets that continue them in the youngest replacement.
    pub(super) fn heirs_of(&self, old: &[Arc<Bucket>]) -> Vec<Heir> {
        let each = self.each.load();
        let follows = |old: &Arc<Bucket>| {
            let heirs = each.first().into_iter().flat_map(|youngest| &youngest.heirs);
            let heirs = heirs.filter(|heir| heir.follows.iter().any(|follows| Arc::ptr_eq(follows, old)));
            heirs.map(|heir| Arc::clone(&heir.bucket)).collect::<Vec<_>>()
        };
        let heirs = old.iter().map(|old| Heir { bucket: Arc::clone(old), follows: follows(old) });
        heirs.filter(|heir| !heir.follows.is_empty()).collect()
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
/// An older one stays as long as a younger one matters, because a key is handed over step by step.
fn alive(older: &[Arc<BucketReplacement>], now_us: u64) -> &[Arc<BucketReplacement>] {
    &older[..older.iter().rposition(|older| older.is_alive(now_us)).map_or(0, |last| last + 1)]
}

impl BucketReplacement {
    fn is_alive(&self, now_us: u64) -> bool {
        self.heirs.iter().flat_map(|heir| &heir.follows).any(|bucket| {
            let spent_us = self.replaced_us.saturating_add(bucket.longest_us());
            now_us < spent_us.max(bucket.furthest_us())
        })
    }
}

impl Heir {
    /// Whether the bucket continues itself.
    pub(super) fn keeps(&self) -> bool {
        matches!(&self.follows[..], [old] if Arc::ptr_eq(old, &self.bucket))
    }
}
