//! Limits that reject no more than a share: the kept part of a log, and the search in it.
//!
//! While the log is read, a [`LogRecord`] keeps which key asked when, as far as there is room. At the end the least limit of each row is
//! searched in it, by itself, and then all found limits are replayed together.

mod record;

pub(super) use self::record::{AskKind, LogRecord, RecordedAsk, mixed};

use std::collections::BTreeMap;

use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Key, Policy, Quota};

use crate::judge::evaluator::{Evaluator, RowAsk, Verdict};
use crate::judge::figures::RuleFigures;
use crate::judge::keys::RowKeys;
use crate::judge::order::NumberedAsk;
use crate::judge::order::StateTables;
use crate::judge::suggest::record::{RowRecord, Tradeoffs};
use crate::outcome::{LimitWithUnusual, Share, Suggestion, UnusualSide};
use crate::read::OWN_OF_ROW;
use crate::replay::WithinSecond;

// Finds the suggested limit: the lowest above which no limit rejects more than a share.
//
// If costs differ, rejections may rise with the limit: a larger request that passes takes the room of several smaller ones. So the
// search starts from above, from a limit that rejects nothing. If a limit rejects nothing of a key, no higher limit
// rejects anything of it.
//
// # How it goes
// 1. For each key, bisection finds the least limit that rejects nothing of it. Bisection is right for one key: see above.
// 2. From the highest of these down, keys are given up one after the other as long as all of their requests together are no more than the
// share. The limit that is reached is certainly enough.
// 3. From there down, limit by limit, the keys that need more are replayed, until the share is exceeded: few keys, because most need less.
// Above 512 it goes in steps of a 512th, and one by one where the share is crossed.
//
// # Source
// The search is our own; each key's bound is found by plain bisection. The variance of a sum over drawn keys is that of Horvitz and
// Thompson (1952) for independent draws: `w (w - 1) r^2` for a key that stands for `w` and has `r` rejections.
//
// # Cost
// Each key is replayed as often as twice the binary logarithm of its bound, and then the few heavy keys once for each limit that is tried.

/// Up to this limit each one is tried; above it, steps are one part in this many.
const FINE: u64 = 512;
/// Each key is decided by itself, and forgotten before the next one.
const AT_ONCE: usize = 16;
/// The highest limit that is tried. A policy that rejects even there rejects for another reason than its limit, such as a cost above its
/// burst that cannot grow.
const HIGHEST: u64 = 1 << 40;

/// Finds the limit of a policy for the kept events of its row; `None` if no limit that it can have is enough.
pub(super) fn suggest(policy: &Policy, kept: &RowRecord, share: Share) -> Option<Suggestion> {
    let search = RowSearch::new(policy, kept);
    let asked: u64 = search.keys.iter().map(|key| key.weight * key.events.len() as u64).sum();
    let keys: u64 = search.keys.iter().map(|key| key.weight).sum();
    let needs = search.needs()?;
    // The rejected requests are at most all requests of keys that are rejected at all.
    let mut needed: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (need, key) in needs.iter().zip(&search.keys) {
        let (requests, weight) = needed.entry(*need).or_default();
        *requests += key.weight * key.events.len() as u64;
        *weight += key.weight;
    }
    let (mut requests, mut rejected_keys, mut limit) = (0, 0, 1);
    for (need, (more, weight)) in needed.iter().rev() {
        requests += more;
        rejected_keys += weight;
        let is_enough = if share.is_of_keys() {
            share.covers(rejected_keys, keys)
        } else {
            share.covers(requests, asked)
        };
        if !is_enough {
            limit = *need;
            break;
        }
    }
    let mut step = 1;
    if !share.is_of_keys() {
        (limit, step) = search.down_from(limit, &needs, |rejected| share.covers(rejected, asked))?;
    }
    search.suggestion(limit, &needs, share, step)
}

/// The suggestion of this limit, whatever it rejects of the kept events.
fn suggestion_at(policy: &Policy, kept: &RowRecord, share: Share, limit: u64) -> Option<Suggestion> {
    let search = RowSearch::new(policy, kept);
    search.suggestion(limit, &search.needs()?, share, 1)
}

/// The policy with another limit of its first quota, and everything else in proportion.
///
/// Units are rounded up, so that no burst and no further limit becomes 0. Returns `None` if the algorithm cannot keep these quotas.
pub(super) fn at(policy: &Policy, limit: u64) -> Option<Policy> {
    let first = policy.quotas().first()?.quota().limit();
    let part = |units: u64| {
        let part = (u128::from(units) * u128::from(limit)).div_ceil(u128::from(first.max(1)));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    let quotas: Vec<Quota> = policy
        .quotas()
        .iter()
        .map(|quota| {
            let quota = quota.quota();
            let wider = quota.with_units(part(quota.limit()), part(quota.burst_size()));
            quota.start().map_or(wider, |start| wider.starting_with(part(start)))
        })
        .collect();
    policy.with_quotas(&quotas).ok()
}

/// The events of one key, in order, and the number of keys that it stands for.
struct OfKey<'a> {
    events: &'a [RecordedAsk],
    /// The value is 1 for a key that is kept whole.
    weight: u64,
}

/// A search for one row.
struct RowSearch<'a> {
    policy: &'a Policy,
    keys: Vec<OfKey<'a>>,
    /// Whether any response gave back: then a store has to decide, because states alone do not know what was given back before.
    gives_back: bool,
}

/// The rejections of one limit: requests and keys, and 1.96 standard deviations of the first.
#[derive(Clone, Copy, Debug, Default)]
struct RejectionCount {
    rejected: u64,
    keys: u64,
    uncertainty: u64,
}

impl<'a> RowSearch<'a> {
    /// A search in events that were put together by key.
    fn new(policy: &'a Policy, kept: &'a RowRecord) -> Self {
        let by_key = kept.events.chunk_by(|one, next| one.key == next.key);
        let keys = by_key.map(|events| OfKey { events, weight: kept.weight(events[0].key) }).collect();
        let gives_back = kept.events.iter().any(|event| event.gives_back);
        Self { policy, keys, gives_back }
    }

    /// The suggestion of a limit.
    fn suggestion(&self, limit: u64, needs: &[u64], share: Share, step: u64) -> Option<Suggestion> {
        let counted = self.count(limit, needs)?;
        Some(Suggestion {
            policy: at(self.policy, limit)?,
            limit,
            share,
            rejected: counted.rejected,
            rejected_keys: counted.keys,
            uncertainty: counted.uncertainty,
            step,
            together: None,
            unusual: None,
        })
    }

    /// The number of requests of each of these keys that a limit rejects.
    fn rejected(&self, limit: u64, keys: &[usize]) -> Option<Vec<u64>> {
        let by_kind = self.rejected_by_kind(limit, keys)?;
        Some(by_kind.into_iter().map(|[ordinary, others]| ordinary + others).collect())
    }

    /// The number of ordinary and of other requests of each of these keys that a limit rejects.
    fn rejected_by_kind(&self, limit: u64, keys: &[usize]) -> Option<Vec<[u64; 2]>> {
        let policy = at(self.policy, limit)?;
        if let Some(mut tables) = StateTables::of([&policy]).filter(|_| !self.gives_back) {
            return Some(keys.iter().map(|place| tables.rejected(self.keys[*place].events)).collect());
        }
        let evaluator = Evaluator::with_room([&policy.with_table_size(AT_ONCE)], AT_ONCE).ok()?;
        if self.gives_back {
            evaluator.keep_accounts(0);
        }
        let rejected = |place: &usize| {
            let key = Key::from(*place as u64);
            let mut count = [0; 2];
            for event in self.keys[*place].events {
                evaluator.set(event.at_us);
                let (key, cost) = (key.clone(), event.cost.into());
                let ask = RowAsk { row: 0, key, cost, is_enforced: true, quotas: None };
                let verdict = evaluator.check(&ask, event.gives_back);
                count[event.side()] += u64::from(matches!(verdict, Verdict::Rejected(_)));
            }
            // The next key begins at an earlier time.
            evaluator.reset(0, &key);
            count
        };
        Some(keys.iter().map(rejected).collect())
    }

    /// The least limit for each key that rejects nothing of it.
    fn needs(&self) -> Option<Vec<u64>> {
        // Bisects between a limit that is too low and one that is enough, each key by itself; keys at the same limit are decided together.
        let mut bounds: Vec<(u64, Option<u64>)> = vec![(0, None); self.keys.len()];
        loop {
            let mut next: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            for (place, bound) in bounds.iter().enumerate() {
                match *bound {
                    (low, None) => next.entry((low * 2).max(1)).or_default().push(place),
                    (low, Some(enough)) if enough - low > 1 => {
                        next.entry(low + (enough - low) / 2).or_default().push(place);
                    }
                    _ => {}
                }
            }
            if next.is_empty() {
                return Some(bounds.into_iter().map(|(low, enough)| enough.unwrap_or(low)).collect());
            }
            for (limit, keys) in next {
                if limit > HIGHEST {
                    return None;
                }
                for (place, rejected) in keys.iter().zip(self.rejected(limit, &keys)?) {
                    match rejected {
                        0 => bounds[*place].1 = Some(limit),
                        _ => bounds[*place].0 = limit,
                    }
                }
            }
        }
    }

    /// The rejections of a limit over all keys, estimated for drawn keys: each stands for as many as its weight, and the variance of the
    /// sum is that of drawing each key by itself.
    fn count(&self, limit: u64, needs: &[u64]) -> Option<RejectionCount> {
        let keys: Vec<usize> = (0..needs.len()).filter(|place| needs[*place] > limit).collect();
        let (mut counted, mut variance) = (RejectionCount::default(), 0_u128);
        for (place, rejected) in keys.iter().zip(self.rejected(limit, &keys)?) {
            let weight = self.keys[*place].weight;
            counted.rejected += weight * rejected;
            counted.keys += weight;
            variance += u128::from(weight * (weight - 1)) * u128::from(rejected) * u128::from(rejected);
        }
        counted.uncertainty = u64::try_from(variance.isqrt() * 196 / 100).unwrap_or(u64::MAX);
        // If no drawn key is rejected, up to three times as many may be as each stands for.
        let weight = self.keys.iter().map(|key| key.weight).max().unwrap_or(1);
        if weight > 1 {
            counted.uncertainty = counted.uncertainty.max(3 * weight);
        }
        Some(counted)
    }

    /// The least limit above which all are enough, from one that is enough, and how far below it the next one was tried.
    fn down_from(&self, enough: u64, needs: &[u64], is_enough: impl Fn(u64) -> bool) -> Option<(u64, u64)> {
        let is_enough = |limit: u64| Some(is_enough(self.count(limit, needs)?.rejected));
        let (mut enough, mut step) = (enough, 1);
        while enough > 1 {
            step = (enough / FINE).max(1);
            let next = enough - step;
            if !is_enough(next)? {
                // Goes on one by one between the two, again from above.
                while enough - 1 > next && is_enough(enough - 1)? {
                    enough -= 1;
                }
                break;
            }
            enough = next;
        }
        Some((enough, step))
    }
}

impl StateTables {
    /// The number of ordinary and of other requests that the only row rejects. What the key has spent is forgotten then.
    fn rejected(&mut self, events: &[RecordedAsk]) -> [u64; 2] {
        let mut count = [0; 2];
        for event in events {
            let ask = NumberedAsk {
                row: 0,
                key: 0,
                cost: event.cost.into(),
                is_enforced: true,
                quotas: OWN_OF_ROW,
            };
            let mut verdict = [Verdict::NotAsked];
            self.decide(WithinSecond::Spread, event.at_us, &[ask], &mut verdict);
            count[event.side()] += u64::from(matches!(verdict, [Verdict::Rejected(_)]));
        }
        // The next key begins at an earlier time.
        self.forget();
        count
    }
}

impl RowRecord {
    /// Groups the events by key, in their order.
    fn by_key(&mut self) {
        self.events.sort_by_key(|event| event.key);
    }
}

// A limit for each row, and all of them replayed together.
//
// Each suggestion is found alone. In the service, rules apply together, and a rule that refuses a request keeps the others from
// spending. So all suggestions are also replayed together, and the result is shown with each.

/// The reason why a row has no suggestion.
const TOO_LARGE: &str =
    "the log is too large to keep what a limit is looked for in: use --only, --since and --until";
const NONE_IS_ENOUGH: &str = "no limit that the policy can have rejects as little";

const NOTHING_ORDINARY: &str =
    "all of its requests are unusual or left out, so there is nothing to learn from";
const NOT_BOTH: &str =
    "no limit rejects so few ordinary and so many unusual requests: see what each limit rejects of both";

/// The requested limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedLimits {
    /// The most that may be rejected of ordinary requests or keys.
    pub(super) share: Share,
    /// The least that has to be rejected of unusual ones, if requested.
    pub(super) least: Option<Share>,
    /// Whether suggestions come only from ordinary requests, without the limit that all requests suggest.
    pub(super) is_rest_only: bool,
}

/// Finds a limit for each row by itself, and replays all of them together.
pub(super) fn suggest_all(
    mut record: LogRecord,
    keys: &RowKeys,
    wanted: WantedLimits,
    rules: &mut [RuleFigures],
) {
    // Kept in the order in which they were asked, before they are grouped by key.
    let mut asked: Vec<(u32, usize, RecordedAsk)> = Vec::new();
    if record.is_whole {
        for (row, kept) in record.rows.iter().enumerate() {
            asked.extend(kept.events.iter().map(|event| (event.request, row, *event)));
        }
        asked.sort_by_key(|(request, row, _)| (*request, *row));
    }
    for (rule, kept) in rules.iter_mut().zip(&mut record.rows) {
        if kept.is_lost {
            rule.no_suggestion = Some(TOO_LARGE);
        } else if rule.asked > 0 {
            kept.by_key();
            suggest_one(rule, kept, wanted);
        }
    }
    if !record.is_whole {
        return;
    }
    let policies = rules.iter().map(|rule| match &rule.suggestion {
        Some(suggestion) => suggestion.policy.clone(),
        None => rule.policy.clone(),
    });
    let policies: Vec<Policy> = policies.collect();
    // Rows of one policy may get different limits; then they share no bucket, so there is nothing to replay together.
    let Ok(evaluator) = Evaluator::new(&policies) else { return };
    let gives_back = |row: usize| record.rows[row].events.iter().any(|event| event.gives_back);
    (0..rules.len()).filter(|row| gives_back(*row)).for_each(|row| evaluator.keep_accounts(row));
    // Groups of keys are counted beside the rules, whatever those refuse.
    (0..rules.len()).filter(|row| rules[*row].group.is_some()).for_each(|row| evaluator.decide_alone(row));
    let mut rejected = vec![0_u64; rules.len()];
    let mut verdicts = Vec::new();
    for request in asked.chunk_by(|one, next| one.0 == next.0) {
        let asks: Vec<RowAsk> = request
            .iter()
            .map(|(_, row, event)| RowAsk {
                row: *row,
                key: keys.key(*row, event.key),
                cost: event.cost.into(),
                is_enforced: rules[*row].policy.mode() == PolicyMode::Enforce,
                quotas: None,
            })
            .collect();
        let given_back = |row| request.iter().any(|(_, asked, event)| *asked == row && event.gives_back);
        verdicts.resize(asks.len(), Verdict::NotAsked);
        evaluator.decide(request[0].2.at_us, &asks, given_back, &mut verdicts);
        for ((_, row, event), verdict) in request.iter().zip(&verdicts) {
            let counts = event.kind == AskKind::Ordinary && matches!(verdict, Verdict::Rejected(_));
            rejected[*row] += u64::from(counts);
        }
    }
    for (rule, rejected) in rules.iter_mut().zip(rejected).filter(|(rule, _)| rule.group.is_none()) {
        if let Some(suggestion) = &mut rule.suggestion {
            suggestion.together = Some(rejected);
        }
    }
}

/// Finds the limit of a row in events that were put together by key: from ordinary ones alone where others are there too.
fn suggest_one(rule: &mut RuleFigures, kept: &RowRecord, wanted: WantedLimits) {
    let WantedLimits { share, least, is_rest_only } = wanted;
    let only = |is_it: fn(AskKind) -> bool| kept.only(is_it);
    if !kept.has(|kind| kind != AskKind::Ordinary) {
        rule.suggestion = suggest(&rule.policy, kept, share);
        rule.no_suggestion = rule.suggestion.is_none().then_some(NONE_IS_ENOUGH);
        return;
    }
    let ordinary = only(|kind| kind == AskKind::Ordinary);
    let tradeoffs = Tradeoffs::new(&rule.policy, kept);
    rule.frontier = tradeoffs.as_ref().map(|tradeoffs| tradeoffs.frontier.clone());
    if ordinary.events.is_empty() {
        rule.no_suggestion = Some(NOTHING_ORDINARY);
        return;
    }
    let Some(mut found) = suggest(&rule.policy, &ordinary, share) else {
        rule.no_suggestion = Some(NONE_IS_ENOUGH);
        return;
    };
    if let (Some(least), Some(tradeoffs)) = (least, &tradeoffs) {
        let both = tradeoffs.between(share, least, found.limit);
        match both.and_then(|point| suggestion_at(&rule.policy, &ordinary, share, point.limit)) {
            Some(both) => found = both,
            None => {
                rule.no_suggestion = Some(NOT_BOTH);
                return;
            }
        }
    }
    let learns_more = !is_rest_only && kept.has(|kind| kind == AskKind::Unusual);
    let with = learns_more.then(|| only(|kind| kind != AskKind::LeftOut));
    let with = with.and_then(|with| suggest(&rule.policy, &with, share));
    if let Some(mut tradeoffs) = tradeoffs {
        let point = tradeoffs.at(found.limit);
        tradeoffs.frontier.add(point);
        found.unusual = point.map(|point| UnusualSide {
            asked: tradeoffs.frontier.unusual,
            rejected: point.unusual,
            share: least,
            with: with.map(|with| LimitWithUnusual {
                policy: with.policy,
                limit: with.limit,
                rejected: with.rejected,
            }),
        });
        rule.frontier = Some(tradeoffs.frontier);
    }
    rule.suggestion = Some(found);
}

#[cfg(test)]
mod tests;
