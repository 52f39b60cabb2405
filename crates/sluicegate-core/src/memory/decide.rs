//! One decision: find the buckets, lock their sets, judge, and spend from all or none.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::Inner;
use super::bucket::{Bucket, Buckets};
use super::change::{Effect, trace};
use super::handover::Handover;
use super::holds::{Held, Hold};
use super::home::{Copied, Home};
use super::place::{Cell, Places, Spot};
use super::table::{Kept, Table, state_words};
use crate::decision::{Decision, QuotaStatus};
use crate::error::{StoreError, StoreErrorKind};
use crate::policy::MAX_QUOTAS;
use crate::receipt::Trace;
use crate::store::{Ask, Balance, DecisionFuture, Judged, Mode, judge};

impl Inner {
    #[inline]
    pub(super) fn decide_now(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // Almost every decision is one key in one bucket in one table; it needs no lists.
        if let [ask] = asks {
            let buckets = match buckets_of(ask) {
                Ok(buckets) => buckets,
                Err(error) => return DecisionFuture::ready(Err(error)),
            };
            if let [bucket] = &*buckets.each
                && !buckets.has_older()
                && ask.mode().asks()
            {
                match &bucket.home {
                    Home::Narrow(table) => return self.decide_single(table, bucket, ask),
                    Home::Wide(table) => return self.decide_single(table, bucket, ask),
                    Home::NarrowKept(table) => return self.decide_single(table, bucket, ask),
                    Home::WideKept(table) => return self.decide_single(table, bucket, ask),
                    Home::Logs(_) => {}
                }
            }
        }
        DecisionFuture::ready(self.decide_all(asks))
    }

    /// Decides one key in one bucket. Where units are held or a turn is given out, it is left to the general case.
    #[inline]
    fn decide_single<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool>(
        &self,
        table: &Table<SLOTS, WORDS, ACCOUNTS>,
        bucket: &Bucket,
        ask: &Ask<'_>,
    ) -> DecisionFuture {
        let in_general = || DecisionFuture::ready(self.decide_all(std::slice::from_ref(ask)));
        let hash = self.hash(bucket.salt, ask.key());
        let index = table.set_of(hash);
        // Before the lock, which is held for less then; but a window must not begin after a moment that is counted in it.
        let is_level = const { state_words::<WORDS, ACCOUNTS>() == 1 };
        let before_us = if is_level { self.clock.now_us() } else { 0 };
        let mut set = table.lock(index);
        if bucket.holds.any() {
            drop(set);
            return in_general();
        }
        let now_us = if is_level { before_us } else { self.clock.now_us() };
        let found = set.find(hash);
        let before = set.get(found);
        let state = before.state;
        let (rule, mode, cost) = (&bucket.rule, ask.mode(), ask.cost());
        let kept = |state| Kept {
            state,
            account: if ACCOUNTS { bucket.account_of(&before, now_us) } else { before.account },
        };
        let told = |decision: Decision, after: Option<Kept>| match after {
            Some(after) if ACCOUNTS && cost > 0 => {
                decision.with_traces([trace(bucket, state, after, after.account.birth(), now_us)])
            }
            _ => decision,
        };
        if mode == Mode::Spend {
            // The same as below, from one look at the state instead of five.
            if let Some(spent) = rule.spend_now(state, now_us, cost) {
                let after = spent.passed.then(|| kept(spent.state));
                if let Some(after) = after {
                    set.put(found, hash, after, rule, now_us);
                }
                drop(set);
                let (remaining, available_after_us) = rule.after(&spent, now_us);
                let reset_after_us = rule.reset_after_us(spent.state, now_us);
                let (capacity, passed) = (rule.capacity(), spent.passed);
                let status = QuotaStatus::at_rest((0, 0), capacity)
                    .with_remaining(remaining)
                    .with_reset_after_us(reset_after_us);
                let status = if passed {
                    status.with_more_after_us(available_after_us).spending(cost)
                } else {
                    status.refused_for_us(available_after_us)
                };
                let decision = Decision::single(now_us, status);
                return DecisionFuture::ready(Ok(told(decision, after)));
            }
        }
        let judged = Judged::new(rule, mode, rule.slot(state, now_us, cost), now_us);
        let spends = judged.passed() && mode.spends();
        if spends && judged.departs_us() > now_us {
            drop(set);
            return in_general();
        }
        let after = spends.then(|| kept(rule.spend(state, now_us, now_us, cost)));
        if let Some(after) = after {
            set.put(found, hash, after, rule, now_us);
        }
        drop(set);
        let state = after.map_or(state, |after| after.state);
        let opens_us = |cost| rule.slot(state, now_us, cost).opens_us;
        let status = judged.status((0, 0), Balance::of(rule, state, now_us), now_us, opens_us);
        let decision = Decision::single(now_us, status.spending(if spends { cost } else { 0 }));
        DecisionFuture::ready(Ok(told(decision, after)))
    }

    /// The general case: several asks, several quotas, logs, replaced policies, turns, reports.
    fn decide_all(&self, asks: &[Ask<'_>]) -> Result<Decision, StoreError> {
        let older = self.older(asks);
        let mut cells = self.cells(asks)?;
        let mut handovers: Vec<Handover<'_>> =
            older.iter().flat_map(|(ask, older)| self.handovers(ask, older)).collect();
        let mut places = lock_all(&mut cells, &mut handovers);
        // Under the locks, so that no thread enters a moment into a log that is before the last one there: what it spends
        // would be entered later than its decision says, and a refund would not find it.
        let now_us = self.clock.now_us();
        handovers.iter().rev().for_each(|handover| handover.carry_out(&mut places, now_us));
        cells.iter().for_each(|cell| places[cell.place].settle(cell, now_us));
        let mut judged = judge_each(&cells, &mut places, now_us);
        // All of a request goes on together, when the last of its turns has come.
        let delays = cells.iter().zip(&judged).map(|(cell, judged)| delay(cell.ask.mode(), judged, now_us));
        let departs_us = now_us.saturating_add(delays.max().unwrap_or(0));
        if departs_us > now_us && !has_room_to_hold(&cells, &judged, departs_us) {
            refuse_waits(&cells, &mut judged, now_us);
        }
        let granted = judged.iter().all(Judged::passed);
        let waits = departs_us > now_us;
        let is_told = waits || cells.iter().any(|cell| cell.bucket.accounts);
        let mut traces = Vec::with_capacity(if is_told { cells.len() } else { 0 });
        let spent: SmallVec<[u64; 4]> = (0..cells.len())
            .map(|index| {
                let Effect { spent, trace } = match &cells[index] {
                    _ if !granted => return 0,
                    cell if waits && holds(&cells, &judged, cell, departs_us) => {
                        self.hold(cell, now_us, departs_us)
                    }
                    cell => places[cell.place].change(cell, now_us, departs_us),
                };
                if is_told {
                    traces.push(trace);
                }
                spent
            })
            .collect();
        let statuses = cells.iter().zip(&judged).zip(&spent).map(|((cell, judged), spent)| {
            let place = &mut places[cell.place];
            let balance = place.balance(cell, now_us);
            let opens_us = |cost| place.slot(cell, now_us, cost).opens_us;
            judged.status(cell.at, balance, now_us, opens_us).spending(*spent)
        });
        let decision = judge(now_us, departs_us - now_us, statuses);
        Ok(if spent.iter().any(|spent| *spent > 0) && is_told {
            decision.with_traces(traces)
        } else {
            decision
        })
    }

    fn cells<'a>(&self, asks: &[Ask<'a>]) -> Result<Cells<'a>, StoreError> {
        let mut cells = Cells::new();
        for (policy, ask) in (0_u8..).zip(asks) {
            for (quota, bucket) in (0_u8..).zip(&*buckets_of(ask)?.each) {
                if cells.len() == MAX_QUOTAS {
                    return Err(StoreError::new(StoreErrorKind::TooManyQuotas));
                }
                cells.push(self.cell(bucket, ask.of_quota(quota), (policy, quota)));
            }
        }
        if cells.is_empty() { Err(StoreError::new(StoreErrorKind::NothingAsked)) } else { Ok(cells) }
    }

    pub(super) fn cell<'a>(&self, bucket: &'a Bucket, ask: Ask<'a>, at: (u8, u8)) -> Cell<'a> {
        let hash = self.hash(bucket.salt, ask.key());
        Cell { bucket, ask, hash, at, spot: (bucket.number, bucket.home.index_of(hash)), place: 0 }
    }

    /// Holds what the ask spends until the request departs.
    fn hold(&self, cell: &Cell<'_>, now_us: u64, departs_us: u64) -> Effect {
        let (bucket, units) = (cell.bucket, cell.ask.cost());
        // Relaxed: it only has to be another number each time.
        let id = self.holds.fetch_add(1, Ordering::Relaxed);
        let hold = Hold { id, units, until_us: departs_us };
        let longest_us = bucket.rule.longest_spend_us();
        let is_over = |hold: &Hold| hold.until_us.saturating_add(longest_us) <= now_us;
        bucket.holds.add(cell.hash, hold, is_over);
        bucket.reaches(departs_us.saturating_add(longest_us));
        bucket.ahead.note(departs_us);
        Effect { spent: units, trace: Trace { birth: hold.id, held: true, ..Trace::default() } }
    }
}

/// Locks every set and shard that is needed, each once, in one order.
fn lock_all<'a>(cells: &mut [Cell<'a>], handovers: &mut [Handover<'a>]) -> Places<'a> {
    let heirs = handovers.iter().flat_map(|handover| &handover.heirs);
    let theirs = heirs.flat_map(|(heir, follows)| std::iter::once(heir).chain(follows));
    let mut spots: SmallVec<[(Spot, &'a Home); 4]> =
        cells.iter().chain(theirs).map(|cell| (cell.spot, &cell.bucket.home)).collect();
    spots.sort_unstable_by_key(|(spot, _)| *spot);
    spots.dedup_by_key(|(spot, _)| *spot);
    let place = |cell: &mut Cell<'_>| {
        cell.place = spots.iter().position(|(spot, _)| *spot == cell.spot).unwrap_or_default();
    };
    cells.iter_mut().for_each(place);
    for (heir, follows) in handovers.iter_mut().flat_map(|handover| &mut handover.heirs) {
        place(heir);
        follows.iter_mut().for_each(place);
    }
    spots.iter().map(|((_, index), home)| home.lock(*index)).collect()
}

/// Judges each ask as if those before it had been carried out.
fn judge_each(cells: &[Cell<'_>], places: &mut Places<'_>, now_us: u64) -> SmallVec<[Judged; 4]> {
    let mut undo: SmallVec<[(&Cell<'_>, Copied, Held); 1]> = SmallVec::new();
    let judged = cells.iter().enumerate().map(|(index, cell)| {
        let twins = |of: &'_ [Cell<'_>], is: fn(Mode) -> bool| {
            let found = of.iter().filter(|twin| twin.is_twin_of(cell) && is(twin.ask.mode()));
            found.fold(None, |sum: Option<u64>, twin| Some(sum.unwrap_or(0).saturating_add(twin.ask.cost())))
        };
        let (place, mode) = (&mut places[cell.place], cell.ask.mode());
        // Spends of one bucket are one spend of all their units. Reports beside them have to be tried out.
        let is_tried = cells.len() > 1 && twins(cells, |mode| !mode.asks()).is_some();
        let ahead = if is_tried || !mode.asks() { None } else { twins(&cells[..index], Mode::spends) };
        let cost = cell.ask.cost().saturating_add(ahead.unwrap_or(0));
        let mut judged = Judged::new(&cell.bucket.rule, mode, place.slot(cell, now_us, cost), now_us);
        if mode == Mode::Return && !place.can_return(cell, now_us) {
            judged = Judged::refused_until(now_us);
        }
        if is_tried && judged.passed() && twins(&cells[index + 1..], |_| true).is_some() {
            undo.push((cell, place.copy(cell.hash, now_us), cell.bucket.holds.of(cell.hash)));
            let delay_us = delay(mode, &judged, now_us);
            place.change(cell, now_us, now_us.saturating_add(delay_us));
        }
        judged
    });
    let judged = judged.collect();
    for (cell, copied, held) in undo.into_iter().rev() {
        places[cell.place].restore(cell.hash, &copied, now_us);
        cell.bucket.holds.restore(cell.hash, held);
    }
    judged
}

/// How long a spend waits for its turn.
fn delay(mode: Mode, judged: &Judged, now_us: u64) -> u64 {
    if mode.spends() { judged.departs_us().saturating_sub(now_us) } else { 0 }
}

/// Whether an ask holds its units until the request departs, rather than spend them at that moment already: if all quotas
/// of its policy could go sooner. Otherwise one waiting request would lock a bucket that others share. A queue holds
/// nothing: it lets go in the order of arrival, and spaces exactly when.
fn holds(cells: &[Cell<'_>], judged: &[Judged], cell: &Cell<'_>, departs_us: u64) -> bool {
    let waits = |cell: &Cell<'_>| matches!(cell.ask.mode(), Mode::Reserve { .. });
    let of_same_ask = cells.iter().zip(judged).filter(|(other, _)| other.at.0 == cell.at.0);
    let is_sooner = || of_same_ask.clone().all(|(_, judged)| judged.departs_us() < departs_us);
    let may_hold = cell.ask.mode().spends() && cell.ask.cost() > 0 && !cell.bucket.rule.is_queue();
    may_hold && cells.iter().any(waits) && is_sooner()
}

/// Whether the other limits can hold what a waiting request will spend: of one key at most half of the burst, or one unit.
fn has_room_to_hold(cells: &[Cell<'_>], judged: &[Judged], departs_us: u64) -> bool {
    let holding: SmallVec<[&Cell<'_>; 4]> =
        cells.iter().filter(|cell| holds(cells, judged, cell, departs_us)).collect();
    holding.iter().enumerate().all(|(index, cell)| {
        let twins = holding[..index].iter().filter(|twin| twin.is_twin_of(cell));
        let ahead = twins.fold(0, |sum: u64, twin| sum.saturating_add(twin.ask.cost()));
        let held = cell.bucket.holds.units(cell.hash).saturating_add(ahead);
        let most = (cell.bucket.capacity / 2).max(1);
        held.saturating_add(cell.ask.cost()) <= most && (held > 0 || cell.bucket.holds.has_room())
    })
}

/// Nothing can be waited for, so an ask passes when it does not have to wait.
fn refuse_waits(cells: &[Cell<'_>], judged: &mut [Judged], now_us: u64) {
    for (cell, judged) in cells.iter().zip(judged) {
        let departs_us = judged.departs_us();
        if cell.ask.mode().spends() && departs_us > now_us {
            *judged = Judged::refused_until(departs_us);
        }
    }
}

fn buckets_of<'a>(ask: &Ask<'a>) -> Result<&'a Buckets, StoreError> {
    ask.policy().prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}

type Cells<'a> = SmallVec<[Cell<'a>; 4]>;
