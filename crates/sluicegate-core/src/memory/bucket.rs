//! A policy as the memory store prepares it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Inner;
use crate::algorithm::{Rule, State};
use crate::error::ConfigError;
use crate::policy::{Policy, PolicyQuota};
use crate::store::Inherit;

/// The buckets of one policy.
pub(super) struct Buckets {
    pub(super) policy: Arc<Policy>,
    pub(super) each: Box<[Bucket]>,
}

/// One quota of one policy: its rule, and which states in the tables are its own.
pub(super) struct Bucket {
    pub(super) rule: Rule,
    pub(super) capacity: u64,
    pub(super) home: Home,
    /// Mixed into every key's hash, so that no two buckets share a state.
    pub(super) salt: u64,
    /// The latest moment to which a debt or a reserved turn of any key reaches.
    furthest_us: AtomicU64,
    pub(super) inherits: Option<Inherits>,
}

/// Where a bucket's states live. The order is that in which several are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Home {
    Narrow,
    Wide,
    Logs,
}

/// The bucket that another one follows, and until when it may still hold a state that matters.
pub(super) struct Inherits {
    pub(super) from: Arc<Buckets>,
    pub(super) quota: usize,
    pub(super) how: Inherit,
    pub(super) replaced_us: u64,
}

/// Replacements that a key may sleep through; beyond them its oldest state is forgotten.
const GENERATIONS: usize = 4;

impl Buckets {
    pub(super) fn new(
        store: &Inner,
        policy: &Arc<Policy>,
        predecessor: Option<&(Arc<Self>, Inherit)>,
    ) -> Result<Self, ConfigError> {
        let now_us = store.clock.now_us();
        let buckets = policy.quotas().iter().map(|quota| {
            let rule = *quota.rule();
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
            let inherits = predecessor.and_then(|&(ref from, how)| {
                let quota = matching(&from.policy, policy, quota)?;
                let alive = how != Inherit::Reset && from.each[quota].generations(now_us) < GENERATIONS;
                alive.then(|| Inherits { from: Arc::clone(from), quota, how, replaced_us: now_us })
            });
            Ok(Bucket {
                rule,
                capacity: rule.capacity(),
                home,
                salt: store.fresh_salt(),
                furthest_us: AtomicU64::new(0),
                inherits,
            })
        });
        let each = buckets.collect::<Result<_, ConfigError>>()?;
        Ok(Self { policy: Arc::clone(policy), each })
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
    /// Notes that a state reaches to `until_us`, beyond what a full burst would.
    pub(super) fn reaches(&self, until_us: u64) {
        // Relaxed: read only to decide whether an old state can still matter, long after.
        self.furthest_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// How indebted a state is, for comparison with others when a set is full.
    pub(super) fn fullness(&self, state: State, now_us: u64) -> u64 {
        fullness(self.rule.used(state, now_us), self.capacity)
    }

    /// Buckets that this one follows and that may still hold a state.
    fn generations(&self, now_us: u64) -> usize {
        self.predecessor(now_us).map_or(0, |(bucket, _)| 1 + bucket.generations(now_us))
    }

    /// The bucket that this one follows, while it may still hold a state that matters.
    pub(super) fn predecessor(&self, now_us: u64) -> Option<(&Self, &Inherits)> {
        let inherits = self.inherits.as_ref()?;
        let bucket = &inherits.from.each[inherits.quota];
        let last_us = inherits.replaced_us.saturating_add(bucket.rule.longest_spend_us());
        let older = bucket.predecessor(now_us).is_some();
        let alive = older || now_us < last_us.max(bucket.furthest_us.load(Ordering::Relaxed));
        alive.then_some((bucket, inherits))
    }
}

/// The used part of a capacity, in 1,024ths.
pub(super) fn fullness(used: u64, capacity: u64) -> u64 {
    used.saturating_mul(1_024) / capacity.max(1)
}
