//! The keys that are refused most, and those that ask most: [`Offenders`].

mod cut;
mod in_turn;
mod listed;
mod refused;
mod sketch;
#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::time::Duration;

use sluicegate_core::clock::micros;
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::store::QuotaStatus;

pub(super) use self::cut::CutKey;
use self::in_turn::InTurn;
use self::listed::RefusalNote;
pub use self::listed::{Asker, Offender, OffenderKind, ShownKey};
pub(super) use self::listed::{digest, shown};
use self::refused::RefusedKeys;
use super::lock::lock;

/// The number of refused keys that are counted. With n of them, each key with more than one in n of the refusals is listed.
const REFUSED: usize = 64;

/// The number of asking keys that are counted.
const ASKING: usize = 12;

/// One in this many asks is looked at to find the keys that ask most.
pub(super) const SAMPLED: u64 = 64;

/// The keys of a policy that were refused most in the last 5 to 10 minutes, and those that asked most, in at most 16 KiB; in floods,
/// up to 32 KiB more.
#[derive(Debug)]
pub(super) struct Offenders {
    refused: RefusedKeys,
    asking: Mutex<InTurn>,
}

impl Offenders {
    /// An empty list.
    pub(super) fn new() -> Self {
        Self { refused: RefusedKeys::new(REFUSED), asking: Mutex::new(InTurn::new(ASKING)) }
    }

    /// Counts a refused request with this key, with its wait, if one helps, and whether the key is suspended.
    pub(super) fn refused(
        &self,
        key: KeyRef<'_>,
        retry_after: Option<Duration>,
        is_suspended: bool,
        now_us: u64,
    ) {
        let until_us = now_us.saturating_add(micros(retry_after.unwrap_or_default()));
        self.refused.count(key, RefusalNote { until_us, is_suspended }.note(), now_us);
    }

    /// Counts a request with this key, one in [`SAMPLED`], which left its quotas in these states. It is skipped if another thread
    /// holds the lock.
    pub(super) fn asked<'a>(
        &self,
        key: KeyRef<'_>,
        quotas: impl Iterator<Item = &'a QuotaStatus>,
        now_us: u64,
    ) {
        if let Ok(mut asking) = self.asking.try_lock() {
            let left = quotas.map(listed::left).min().unwrap_or(0);
            asking.count(key.digest(), || CutKey::of(key), left, now_us);
        }
    }

    /// The keys that were refused most, the one with the most certain refusals first.
    pub(super) fn most_refused(&self, now_us: u64) -> Vec<Offender> {
        let (total, keys) = self.refused.counted(now_us).frequent(now_us);
        keys.iter().map(|key| Offender::new(key, total, now_us)).collect()
    }

    /// The keys that asked most.
    pub(super) fn most_asking(&self, now_us: u64) -> Vec<Asker> {
        let (_, keys) = lock(&self.asking).frequent(now_us);
        keys.iter().map(Asker::new).collect()
    }

    /// The key that is listed with this [reference](Offender::reference), unless the key is too long to be kept whole.
    pub(super) fn find(&self, reference: &str) -> Option<Key> {
        let digest = listed::digest(reference)?;
        let key = self.refused.find(digest).or_else(|| lock(&self.asking).find(digest).copied())?;
        key.whole()
    }
}

impl Default for Offenders {
    fn default() -> Self {
        Self::new()
    }
}
