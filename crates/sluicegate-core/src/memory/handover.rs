//! Units that a key has spent under a replaced policy count under the new one: each key is
//! handed over once, by its next request, as it was at the moment of the replacement. So it does not matter which request that is, by
//! which quotas it asks, or whether it only looks.
//!
//! All sets involved are locked together with the sets of the decision, so that no other request sees
//! the key twice or not at all. The old states are set to rest, and the new states are written. With several
//! replacements in a row the oldest is carried out first.

use std::mem::discriminant;
use std::sync::Arc;

use smallvec::SmallVec;

use super::buckets::{Bucket, BucketReplacement, Buckets, Heir};
use super::change::{BucketCell, LockedSets};
use super::home::LockedSet;
use super::logs::LogCopy;
use super::slot::{NumberedRule, SlotWords};
use super::store::PolicyBuckets;
use crate::algorithm::{Rule, State, Units};
use crate::few::few;
use crate::store::{Ask, Inherit};

/// A replacement after which the key of an ask may still have to be handed over.
pub(super) struct Handover<'a> {
    how: Inherit,
    replaced_us: u64,
    /// Each bucket, and the buckets that it continues.
    pub(super) heirs: Vec<(BucketCell<'a>, Vec<BucketCell<'a>>)>,
}

/// The state of a key in a replaced bucket.
struct Estate {
    /// The rule by which it was counted, and whether the key brought it.
    rule: Rule,
    is_own: bool,
    /// The moment of its states, from which on they count under the new policy.
    at_us: u64,
    left: LeftBehind,
    floor: State,
    /// The units that count.
    spent: u64,
    /// Whether the key is unknown there and only inherits a debt, which must be added only once.
    inherited: bool,
}

enum LeftBehind {
    State(State),
    Entries(LogCopy),
}

impl PolicyBuckets {
    /// The former policies of these asks that may still matter. Called once per decision, because the answer may change
    /// in between.
    pub(super) fn older<'a>(&self, asks: &[Ask<'a>]) -> Older<'a> {
        let slept = asks.iter().filter_map(|ask| {
            let buckets = ask.policy().prepared::<Buckets>().filter(|buckets| buckets.replaced.are_any())?;
            Some((*ask, buckets.replaced.alive(self.context.clock.now_us())))
        });
        few(slept)
    }

    /// The handovers that an ask may need, the youngest first.
    pub(super) fn handovers<'a>(
        &self,
        ask: &Ask<'a>,
        older: &'a [Arc<BucketReplacement>],
    ) -> impl Iterator<Item = Handover<'a>> {
        let ask = *ask;
        let cell = move |bucket: &'a Arc<Bucket>| {
            self.cell((bucket, NumberedRule { rule: bucket.rules.own, plan: 0 }), ask, (0, 0))
        };
        older.iter().map(move |older| {
            let both =
                |Heir { bucket, follows }: &'a Heir| (cell(bucket), follows.iter().map(cell).collect());
            let BucketReplacement { how, replaced_us, .. } = **older;
            Handover { how, replaced_us, heirs: older.heirs.iter().map(both).collect() }
        })
    }
}

/// The asks whose policies have replaced others, with those replacements.
pub(super) type Older<'a> = SmallVec<[(Ask<'a>, Arc<Vec<Arc<BucketReplacement>>>); 1]>;

impl Handover<'_> {
    pub(super) fn carry_out(&self, places: &mut LockedSets<'_>, now_us: u64) {
        let estates: SmallVec<[_; 1]> = self
            .heirs
            .iter()
            .filter_map(|(heir, follows)| {
                let estates = follows.iter().filter_map(|old| {
                    // The old policy may be in use elsewhere, and have spent since.
                    let at_us = self.replaced_us.max(old.bucket.spent_us()).min(now_us);
                    Some((old, places[old.place].estate(old, at_us)?))
                });
                // The first of the buckets with the most spent units.
                let (old, estate) =
                    estates.reduce(|most, other| if other.1.spent > most.1.spent { other } else { most })?;
                Some((heir, old, estate))
            })
            .collect();
        if estates.is_empty() {
            return;
        }
        for old in self.heirs.iter().flat_map(|(_, follows)| follows) {
            places[old.place].forget(old, now_us);
        }
        for (heir, old, estate) in &estates {
            heir.bucket.ahead.inherit(&old.bucket.ahead);
            places[heir.place].adopt(heir, estate, self.how, now_us);
            heir.bucket.spends_at(estate.at_us);
        }
    }

    /// Notes that the ask has spent: earlier moments of these buckets are over.
    pub(super) fn has_spent(&self, now_us: u64) {
        self.heirs.iter().for_each(|(heir, _)| heir.bucket.spends_at(now_us));
    }
}

impl LockedSet<'_> {
    /// The estate of a key here at this moment, if it was not at rest; if newcomers start with less than a burst, if the key was known.
    fn estate(&mut self, cell: &BucketCell<'_>, at_us: u64) -> Option<Estate> {
        let plan = self.entry(cell.hash).plan;
        let (rule, is_own) = (cell.bucket.rules.numbered(plan), plan > 0);
        let (inherited, mut is_known) = (!self.knows(cell.hash, at_us), false);
        let (left, spent) = match self {
            LockedSet::Log(shard) => {
                (LeftBehind::Entries(shard.entries(cell.hash, at_us)), shard.used(cell.in_log(), at_us))
            }
            place => {
                let state = place.entry(cell.hash).state;
                is_known = state.until_us > at_us;
                let least = u64::from(!rule.begins());
                let spent = if is_known { rule.outstanding(state, at_us).max(least) } else { 0 };
                (LeftBehind::State(state), spent)
            }
        };
        let floor = cell.bucket.floors.of(cell.hash, at_us);
        (spent > 0 || is_known).then_some(Estate { rule, is_own, at_us, left, floor, spent, inherited })
    }

    /// Forgets a key that was handed over.
    fn forget(&mut self, cell: &BucketCell<'_>, now_us: u64) {
        cell.bucket.has_no_floor(cell.hash);
        match self {
            LockedSet::Log(shard) => shard.reset(cell.hash),
            // A key without an entry would take the place of another one, which may still have to be handed over.
            place if place.entry(cell.hash) == SlotWords::default() => {}
            place => place.put(cell, SlotWords::default(), now_us),
        }
    }

    /// Starts the key with the units that it has left under another policy.
    ///
    /// If the key is known here already, a running request has spent under the old policy after the new one began:
    /// then only the units of that request are added. A debt that the key only inherits there is a lower bound for its debt
    /// here.
    ///
    /// It runs under the locks of both buckets, so that a key is adopted once, however many
    /// requests come at the same time.
    fn adopt(&mut self, cell: &BucketCell<'_>, estate: &Estate, how: Inherit, now_us: u64) {
        let BucketCell { bucket, hash, .. } = *cell;
        let cell = &BucketCell { by: estate.rule_in(bucket, now_us), ..*cell };
        let NumberedRule { rule, plan } = &cell.by;
        let Estate { rule: from, left, spent, at_us, .. } = estate;
        let (plan, spent, at_us) = (*plan, *spent, *at_us);
        let missing = |known: u64| if estate.inherited { spent.saturating_sub(known) } else { spent };
        match self {
            LockedSet::Log(shard) => {
                match left {
                    _ if shard.used(cell.in_log(), now_us) > 0 => {
                        let spent = missing(shard.used(cell.in_log(), now_us));
                        shard.spend(cell.in_log(), now_us, now_us, spent);
                    }
                    LeftBehind::Entries(log) if how == Inherit::Spent || from == rule => {
                        shard.follow(cell.in_log(), log, now_us);
                    }
                    left => {
                        let units = kept(left, from, rule, spent, how, at_us);
                        let units = units.map_or(spent, |units| units.missing_of(rule.capacity()));
                        shard.spend(cell.in_log(), now_us, at_us, units);
                    }
                }
                bucket.reaches(hash, now_us.saturating_add(shard.reset_after_us(cell.in_log(), now_us)));
            }
            place => {
                let mut known = place.kept(cell, now_us);
                if known.state.until_us > now_us {
                    known.account = bucket.account_of(rule, &known, now_us);
                    let spent = missing(rule.outstanding(known.state, now_us));
                    known.state = rule.spend(known.state, now_us, now_us, spent);
                } else {
                    let state = match (left, kept(left, from, rule, spent, how, at_us)) {
                        (_, Some(units)) => rule.state_with(units, at_us),
                        (LeftBehind::State(state), None) => rule.converted(from, *state, at_us),
                        (LeftBehind::Entries(_), None) => rule.holding(spent, at_us),
                    };
                    known = SlotWords { state, account: bucket.new_account(), plan };
                }
                bucket.reaches(hash, known.state.until_us);
                // Under another rule, earlier units are not given back.
                if from == rule {
                    bucket.floors.raise(rule, hash, estate.floor, now_us);
                }
                place.put(cell, known, now_us);
            }
        }
    }
}

impl Estate {
    /// The rule by which the key is counted in a bucket that follows: its own, if it brought one of the same kind, or else the
    /// policy's. The ask has no part in it.
    fn rule_in(&self, bucket: &Bucket, now_us: u64) -> NumberedRule {
        let is_alike = discriminant(&self.rule) == discriminant(&bucket.rules.own);
        let own = Some(&self.rule).filter(|_| self.is_own && is_alike);
        let plan = own.and_then(|rule| bucket.plan(rule, now_us).ok().flatten());
        plan.map_or(NumberedRule { rule: bucket.rules.own, plan: 0 }, |plan| plan.counted())
    }
}

/// The units that the strategy leaves a key; `None` if they follow from its spent units.
fn kept(left: &LeftBehind, from: &Rule, to: &Rule, spent: u64, how: Inherit, at_us: u64) -> Option<Units> {
    if how == Inherit::Spent || from == to {
        return None;
    }
    let available = match left {
        LeftBehind::State(state) => from.available(*state, at_us),
        LeftBehind::Entries(_) => Units::whole(i128::from(from.capacity()) - i128::from(spent)),
    };
    let all = Units::whole(to.capacity().into());
    Some(how.units(available, from.capacity(), to.capacity()).unwrap_or(all))
}
