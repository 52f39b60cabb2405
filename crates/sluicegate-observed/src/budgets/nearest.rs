//! The keys that are nearest to the end of their budgets: [`Nearest`], shown as [`KeyBudget`].

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::key::{Key, KeyRef};

use super::BudgetStanding;
use crate::offenders::{CutKey, OffenderKind, shown};

/// The keys that are listed for each policy.
const MOST: usize = 16;

/// A key that has used much of a budget, which is a [quota of a calendar](sluicegate_core::Quota::in_calendar), as of its last decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyBudget {
    /// As [`Offender::key`](crate::Offender::key).
    pub key: String,
    /// How it is shown.
    pub kind: OffenderKind,
    /// As [`Offender::digest`](crate::Offender::digest).
    pub digest: String,
    /// As [`Offender::reference`](crate::Offender::reference).
    pub reference: String,
    /// The place of the quota in its policy.
    pub quota: usize,
    /// The used units of the limit, including reserved ones.
    pub used: u64,
    /// The units of each period: the key's own limit, if it has brought one. Carried units come on top, and
    /// are spent first.
    pub limit: u64,
    /// The beginning of the period.
    pub from: SystemTime,
    /// The end of the period.
    pub until: SystemTime,
}

impl KeyBudget {
    /// The moment at which the budget is used up, if the key continues at the pace of the period so far. `None` if that is not before the
    /// period ends; `now` if it is used up.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use sluicegate_core::clock::ManualClock;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_observed::Observed;
    ///
    /// let (clock, hour) = (ManualClock::new(), Duration::from_secs(3_600));
    /// let store = MemoryStore::builder().clock(clock.clone()).build()?;
    /// let store = Observed::named("memory", store)?;
    /// let tokens = Policy::gcra("tokens", "100/day in UTC").on(&store)?;
    /// clock.advance(6 * hour);
    /// tokens.check("ada").cost(60).now().expect("memory answers at once")?;
    ///
    /// let snapshot = store.snapshot();
    /// let ada = &snapshot.policies[0].budgets[0];
    /// assert_eq!((ada.used, ada.limit), (60, 100));
    /// assert_eq!(ada.used_up_at(snapshot.at), Some(snapshot.at + 4 * hour));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn used_up_at(&self, now: SystemTime) -> Option<SystemTime> {
        let left = self.limit.saturating_sub(self.used);
        let gone = now.duration_since(self.from).unwrap_or_default();
        let wait_us = gone.as_micros().checked_mul(left.into())?.checked_div(self.used.into())?;
        let at = now.checked_add(Duration::from_micros(u64::try_from(wait_us).ok()?))?;
        Some(at).filter(|at| left == 0 || *at < self.until)
    }
}

/// The keys of a policy that have used the largest parts of their budgets, in the periods that are under way.
#[derive(Default)]
pub(super) struct Nearest(Vec<NearKey>);

struct NearKey {
    digest: u64,
    key_digest: u64,
    key: CutKey,
    quota: usize,
    standing: BudgetStanding,
}

impl Nearest {
    /// Notes the standing of a key. The digest is that of the key and the quota.
    pub(super) fn note(
        &mut self,
        digest: u64,
        key: KeyRef<'_>,
        quota: usize,
        standing: BudgetStanding,
        now_us: u64,
    ) {
        if let Some(known) = self.0.iter_mut().find(|near| near.digest == digest) {
            // A decision of the period before may come late. Another period beside this one is that of another calendar.
            let is_before = standing.until_us <= known.standing.from_us;
            if !is_before || known.standing.until_us <= now_us {
                known.standing = standing;
            }
            return;
        }
        if standing.used == 0 {
            return;
        }
        let near = || NearKey { digest, key_digest: key.digest(), key: CutKey::of(key), quota, standing };
        if self.0.len() < MOST {
            self.0.push(near());
            return;
        }
        let farthest = self.0.iter_mut().min_by_key(|near| near.standing.part_used(now_us));
        if let Some(farthest) = farthest
            && farthest.standing.part_used(now_us) < standing.part_used(now_us)
        {
            *farthest = near();
        }
    }

    pub(super) fn shown(&self, now_us: u64) -> Vec<KeyBudget> {
        let mut all: Vec<_> = self.0.iter().filter(|near| near.standing.part_used(now_us) > 0).collect();
        all.sort_by_key(|near| Reverse((near.standing.part_used(now_us), near.standing.used)));
        all.into_iter().map(NearKey::shown).collect()
    }

    pub(super) fn find(&self, digest: u64) -> Option<Key> {
        self.0.iter().find(|near| near.key_digest == digest).and_then(|near| near.key.whole())
    }

    /// The memory that it takes on the heap when it is full.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity().max(MOST) * size_of::<NearKey>()
    }
}

impl NearKey {
    fn shown(&self) -> KeyBudget {
        let (key, kind, digest, reference) = shown(self.key_digest, &self.key);
        let BudgetStanding { used, limit, from_us, until_us } = self.standing;
        let time = |us| UNIX_EPOCH + Duration::from_micros(us);
        let (from, until) = (time(from_us), time(until_us));
        KeyBudget { key, kind, digest, reference, quota: self.quota, used, limit, from, until }
    }
}

impl BudgetStanding {
    /// The part of the budget that is used, in 2^32ths; 0 after its period.
    fn part_used(&self, now_us: u64) -> u64 {
        if self.until_us <= now_us {
            return 0;
        }
        let part = (u128::from(self.used) << 32) / u128::from(self.limit.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}
