//! Budgets, which are quotas of a calendar: the keys that have used most of their budgets, and warnings about them, [`Budgets`].
//!
//! A decision that leaves a key half of its budget or more only updates the list of the nearest keys. Below that, a table remembers the
//! warnings given. Both have a fixed size, whatever keys clients make up, and exist once a policy has a quota of a calendar.

use std::cmp::Reverse;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::Decision;
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{DecidedBy, QuotaStatus};
use sluicegate_core::support::lock;

use crate::offenders;
use crate::offenders::{CutKey, OffenderKind, shown};

/// The thresholds of a budget at which warnings are given, in percent.
pub(super) const PERCENTS: [u8; 3] = [50, 80, 100];

/// The budgets of the keys of a policy.
pub(super) struct Budgets {
    hashes: RandomState,
    given: Mutex<GivenWarnings>,
    nearest: Mutex<Nearest>,
}

/// The ask that a decision is about.
#[derive(Clone, Copy)]
pub(super) struct BudgetAsk<'a> {
    /// The policy with the quotas that have decided.
    pub(super) numbers: &'a Policy,
    /// The place of the ask among those of the decision.
    pub(super) place: usize,
    pub(super) key: KeyRef<'a>,
    /// Whether warnings are given.
    pub(super) warns: bool,
}

/// A part of a budget that a key has used, for the first time in the period.
#[derive(Clone, Copy)]
pub(super) struct BudgetWarning {
    /// The place in [`PERCENTS`].
    pub(super) part: usize,
    /// The place of the quota in its policy.
    pub(super) quota: usize,
    pub(super) standing: BudgetStanding,
}

/// A key's use of a budget, in the period of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BudgetStanding {
    pub(super) used: u64,
    pub(super) limit: u64,
    from_us: u64,
    pub(super) until_us: u64,
}

/// Whether a policy has a budget.
pub(super) fn has_budget(policy: &Policy) -> bool {
    policy.quotas().iter().any(|quota| quota.quota().calendar().is_some())
}

impl Budgets {
    pub(super) fn new() -> Self {
        Self {
            hashes: RandomState::new(),
            given: Mutex::new(GivenWarnings::new()),
            nearest: Mutex::default(),
        }
    }

    /// Notes the standing of a key after a decision, and calls `warn` for each warning that is due, without a lock.
    pub(super) fn note(&self, ask: BudgetAsk<'_>, decision: &Decision, mut warn: impl FnMut(BudgetWarning)) {
        // The fallback knows only a share of the spent units, and other deciders report a key at rest.
        if !matches!(decision.decided_by(), DecidedBy::Store | DecidedBy::Lease) {
            return;
        }
        let own = decision.quotas().iter().filter(|status| status.policy_index() == ask.place);
        for status in own.filter(|status| !status.is_suspended()) {
            let quota = status.quota_index();
            let Some(standing) = BudgetStanding::of(ask.numbers, status, decision.at_us()) else { continue };
            let digest = self.hashes.hash_one((ask.numbers.name(), quota, ask.key.digest()));
            lock(&self.nearest).note(digest, ask.key, quota, standing, decision.at_us());
            if ask.warns {
                let parts = self.due(digest, standing, status.spent(), decision.at_us());
                parts.for_each(|part| warn(BudgetWarning { part, quota, standing }));
            }
        }
    }

    /// The thresholds with a warning due.
    fn due(&self, digest: u64, standing: BudgetStanding, spent: u64, now_us: u64) -> Range<usize> {
        let reached = standing.parts_used();
        if reached == 0 {
            return 0..0;
        }
        // Other numbers are another budget.
        let BudgetStanding { limit, from_us, until_us, .. } = standing;
        let digest = self.hashes.hash_one((digest, limit, from_us, until_us));
        let before = BudgetStanding { used: standing.used.saturating_sub(spent), ..standing }.parts_used();
        let given = lock(&self.given).give(digest, until_us, now_us, reached);
        given.unwrap_or(before)..reached
    }

    /// The keys that have used most of their budgets in the periods that are under way, the one nearest to the end first.
    pub(super) fn nearest(&self, now_us: u64) -> Vec<KeyBudget> {
        lock(&self.nearest).shown(now_us)
    }

    /// Forgets the keys that are listed, because a policy was replaced and their budgets with it. They are listed again once they ask.
    pub(super) fn forget_nearest(&self) {
        *lock(&self.nearest) = Nearest::default();
    }

    /// The key that is listed with this reference.
    pub(super) fn find(&self, reference: &str) -> Option<Key> {
        lock(&self.nearest).find(offenders::digest(reference)?)
    }
}

impl BudgetStanding {
    /// `None` if the quota is not a budget.
    fn of(numbers: &Policy, status: &QuotaStatus, at_us: u64) -> Option<Self> {
        let quota = numbers.quotas().get(status.quota_index())?;
        let (from_us, until_us) = quota.quota().calendar()?.around(at_us);
        // A share of a policy has that share of its limit. Carried units come on top of the limit, and are spent first.
        let limit = part_of(quota.quota().limit(), status.capacity(), quota.rule().capacity());
        Some(Self { used: limit.saturating_sub(status.remaining()), limit, from_us, until_us })
    }

    /// The number of [`PERCENTS`] that are used.
    fn parts_used(&self) -> usize {
        PERCENTS.iter().filter(|percent| self.has_used(**percent)).count()
    }

    fn has_used(&self, percent: u8) -> bool {
        u128::from(self.used) * 100 >= u128::from(self.limit.max(1)) * u128::from(percent)
    }
}

fn part_of(number: u64, part: u64, whole: u64) -> u64 {
    let part = u128::from(number) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

// The budget warnings given so far, in fixed memory: [`GivenWarnings`].

/// The keys of a policy whose warnings are remembered, 16 bytes each.
const SETS: usize = 1_024;
const WAYS: usize = 4;
const SECOND_US: u64 = 1_000_000;

/// The number of warnings that were given of each budget of a key in its period.
///
/// A slot is free again when its period has ended. While all four slots of a set are taken, further keys of that set are not remembered.
struct GivenWarnings(Box<[GivenWarning]>);

/// A budget with warnings given.
#[derive(Clone, Copy)]
struct GivenWarning {
    digest: u64,
    /// The end of the period, in whole seconds since the epoch, as borders of a calendar are.
    until_s: u32,
    parts: u8,
}

impl GivenWarnings {
    fn new() -> Self {
        Self(vec![GivenWarning { digest: 0, until_s: 0, parts: 0 }; SETS * WAYS].into())
    }

    /// Stores the number of thresholds that were warned about, and returns the number stored before; `None` if it is unknown because there was no
    /// room to remember it. The digest identifies a budget in one period.
    fn give(&mut self, digest: u64, until_us: u64, now_us: u64, parts: usize) -> Option<usize> {
        let seconds = |us: u64| u32::try_from(us / SECOND_US).unwrap_or(u32::MAX);
        let parts = u8::try_from(parts).unwrap_or(u8::MAX);
        let set = usize::try_from(digest % SETS as u64).unwrap_or(0) * WAYS;
        let set = self.0.get_mut(set..set + WAYS)?;
        let is_of = |place: &GivenWarning| place.until_s > 0 && place.digest == digest;
        if let Some(place) = set.iter_mut().find(|place| is_of(place)) {
            let before = place.parts;
            place.parts = before.max(parts);
            return Some(before.into());
        }
        let place = set.iter_mut().find(|place| place.until_s <= seconds(now_us))?;
        *place = GivenWarning { digest, until_s: seconds(until_us), parts };
        Some(0)
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

// The keys that are nearest to the end of their budgets: [`Nearest`], shown as [`KeyBudget`].

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
struct Nearest(Vec<NearKey>);

struct NearKey {
    digest: u64,
    key_digest: u64,
    key: CutKey,
    quota: usize,
    standing: BudgetStanding,
}

impl Nearest {
    /// Notes the standing of a key. The digest is that of the key and the quota.
    fn note(&mut self, digest: u64, key: KeyRef<'_>, quota: usize, standing: BudgetStanding, now_us: u64) {
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

    fn shown(&self, now_us: u64) -> Vec<KeyBudget> {
        let mut all: Vec<_> = self.0.iter().filter(|near| near.standing.part_used(now_us) > 0).collect();
        all.sort_by_key(|near| Reverse((near.standing.part_used(now_us), near.standing.used)));
        all.into_iter().map(NearKey::shown).collect()
    }

    fn find(&self, digest: u64) -> Option<Key> {
        self.0.iter().find(|near| near.key_digest == digest).and_then(|near| near.key.whole())
    }

    /// The memory that it takes on the heap when it is full.
    #[cfg(test)]
    fn bytes(&self) -> usize {
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

#[cfg(test)]
mod tests;
