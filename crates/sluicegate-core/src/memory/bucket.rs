//! A policy as the memory store prepares it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Inner;
use crate::algorithm::{Rule, State};
use crate::error::ConfigError;
use crate::policy::{Policy, PolicyQuota};
use crate::store::{Ask, Inherit};

/// The buckets of one policy, one per quota.
pub(super) struct Buckets {
    pub(super) policy: Arc<Policy>,
    pub(super) each: Box<[Line]>,
}

/// A quota's bucket, and those of the policies before that it follows; the youngest first.
pub(super) struct Line {
    pub(super) bucket: Arc<Bucket>,
    pub(super) older: Box<[Older]>,
}

/// One quota of one policy: its rule, and which states in the tables are its own.
pub(super) struct Bucket {
    pub(super) rule: Rule,
    pub(super) capacity: u64,
    pub(super) home: Home,
    /// Mixed into every key's hash, so that no two buckets share a state.
    pub(super) salt: u64,
    /// What was spent before this moment was never spent from this bucket; 0 if it has always been, or inherits.
    began_us: u64,
    /// The latest moment to which a debt or a reserved turn of any key reaches.
    furthest_us: AtomicU64,
}

/// Where a bucket's states live. The order is that in which several are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Home {
    Narrow,
    Wide,
    Logs,
}

/// A bucket that was replaced by the next younger one, when, and what that one inherits.
#[derive(Clone)]
pub(super) struct Older {
    pub(super) bucket: Arc<Bucket>,
    pub(super) how: Inherit,
    pub(super) replaced_us: u64,
}

/// Replacements that a key may sleep through within the time in which its state matters; of one that slept longer,
/// the state is forgotten. Each that still matters costs a decision one more set to lock.
const GENERATIONS: usize = 32;

impl Buckets {
    pub(super) fn new(
        store: &Inner,
        policy: &Arc<Policy>,
        predecessor: Option<&(Arc<Self>, Inherit)>,
    ) -> Result<Self, ConfigError> {
        let now_us = store.clock.now_us();
        let lines = policy.quotas().iter().map(|quota| {
            let follows = predecessor
                .filter(|(_, how)| *how != Inherit::Reset)
                .and_then(|(from, how)| Some((&from.each[matching(&from.policy, policy, quota)?], how)));
            let began_us = match (follows, predecessor) {
                (Some((followed, _)), _) => followed.bucket.began_us,
                (None, Some(_)) => now_us,
                (None, None) => 0,
            };
            let bucket = Arc::new(Bucket::new(store, policy, *quota.rule(), began_us)?);
            let inherited = follows.map(|(followed, how)| {
                let youngest = Older { bucket: Arc::clone(&followed.bucket), how: *how, replaced_us: now_us };
                let older = followed.alive(now_us).iter().cloned();
                std::iter::once(youngest).chain(older).take(GENERATIONS).collect()
            });
            Ok(Line { bucket, older: inherited.unwrap_or_default() })
        });
        let each = lines.collect::<Result<_, ConfigError>>()?;
        Ok(Self { policy: Arc::clone(policy), each })
    }
}

impl Line {
    /// The older buckets that may still hold a state that matters.
    pub(super) fn alive(&self, now_us: u64) -> &[Older] {
        let count = self.older.iter().rposition(|older| older.is_alive(now_us)).map_or(0, |last| last + 1);
        &self.older[..count]
    }
}

impl Older {
    fn is_alive(&self, now_us: u64) -> bool {
        let spent_us = self.replaced_us.saturating_add(self.bucket.rule.longest_spend_us());
        now_us < spent_us.max(self.bucket.furthest_us.load(Ordering::Relaxed))
    }
}

/// Which quota of the old policy a quota of the new one follows.
fn matching(old: &Policy, new: &Policy, quota: &PolicyQuota) -> Option<usize> {
    let anonymous =
        |policy: &Policy| policy.quotas().iter().filter(|quota| quota.id().is_none()).count() == 1;
    match quota.id() {
        None if !anonymous(old) || !anonymous(new) => None,
        id => old.quotas().iter().position(|old| old.id() == id),
    }
}

impl Bucket {
    fn new(store: &Inner, policy: &Policy, rule: Rule, began_us: u64) -> Result<Self, ConfigError> {
        // Whatever it needs is allocated now, so that no decision is the first.
        let home = match rule {
            Rule::SlidingLog(log) => {
                store.check_log(policy, &log)?;
                store.logs();
                Home::Logs
            }
            _ if rule.fits_one_word() => {
                store.narrow();
                Home::Narrow
            }
            _ => {
                store.wide();
                Home::Wide
            }
        };
        let (capacity, salt) = (rule.capacity(), store.fresh_salt());
        Ok(Self { rule, capacity, home, salt, began_us, furthest_us: AtomicU64::new(0) })
    }

    /// Whether what an ask gives back was spent from a bucket that was forgotten when this one began afresh.
    pub(super) fn never_had(&self, ask: &Ask<'_>) -> bool {
        ask.receipt().is_some_and(|receipt| receipt.at_us() < self.began_us)
    }

    /// Notes that a state reaches to `until_us`, beyond what a full burst would.
    pub(super) fn reaches(&self, until_us: u64) {
        // Relaxed: read only to decide whether an old state can still matter, long after.
        self.furthest_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// How indebted a state is, for comparison with others when a set is full.
    pub(super) fn fullness(&self, state: State, now_us: u64) -> u64 {
        fullness(self.rule.used(state, now_us), self.capacity)
    }
}

/// The used part of a capacity, in 1,024ths.
pub(super) fn fullness(used: u64, capacity: u64) -> u64 {
    used.saturating_mul(1_024) / capacity.max(1)
}
