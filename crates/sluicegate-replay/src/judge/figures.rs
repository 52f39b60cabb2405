//! Counts of asked and rejected requests: [`RowTally`] during the replay, [`RuleFigures`] at its end.
//!
//! # Per key and minute
//! The number of requests of a key in a minute is known when the minute is over, which is when the key comes again or the log ends. So each
//! key has only the count of its last minute, and [`crowds`](Tally) counts how often each count has occurred: the quantiles over all
//! minutes of all keys take a list as long as the largest crowd, and are exact up to a million.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use sluicegate_core::{Algorithm, Key, Policy};

use crate::judge::evaluator::Verdict;
use crate::outcome::{Frontier, KeyGroup, Suggestion, moment};
use crate::read::{Brought, OWN_OF_ROW};

/// Minutes of the log begin where those of Unix time do.
pub(crate) const MINUTE_US: u64 = 60_000_000;

/// The figures of one policy for one rule.
///
/// [`asked`](Self::asked) counts requests and not units: a refused request counts once, even if it costs five. A policy in shadow mode
/// counts as if it refused, and keeps no other rule from being asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleFigures {
    /// The name of the rule.
    pub name: String,
    /// The policy that it spends from. Under a group of keys it has a name of its own, as `api.network`.
    pub policy: Policy,
    /// The group of keys that is counted here in place of the keys of the rule; `None` for the rule itself.
    ///
    /// Set by [`groups`](crate::Replay::groups). A group refuses nothing, and is decided whatever the rules refuse.
    pub group: Option<KeyGroup>,
    /// Requests that were asked of it.
    pub asked: u64,
    /// Requests for which it had no room.
    pub rejected: u64,
    /// Asked requests whose key had quotas of its own.
    pub own_quotas: u64,
    /// The value of `rejected` with whole seconds taken the other way, together or spread; `None` where the log has finer times.
    ///
    /// If it is far from [`rejected`](Self::rejected), the burst is about as large as the number of requests within a second: log finer times, or
    /// trust neither number.
    pub rejected_otherwise: Option<u64>,
    /// Keys that were seen.
    ///
    /// Keys are counted as the rule calls them: addresses of IPv6 by their network, if the rule counts networks.
    pub keys: u64,
    /// Keys with at least one rejected request.
    pub rejected_keys: u64,
    /// The minute in which most requests were rejected.
    ///
    /// The first of several equal ones; `None` if nothing was rejected.
    pub worst: Option<Worst>,
    /// The shortest wait after a rejection that a client would have been told.
    ///
    /// A cost that can never pass has no wait, so this is also `None` if nothing else was rejected.
    pub shortest_wait: Option<Duration>,
    /// The longest wait after a rejection that a client would have been told.
    pub longest_wait: Option<Duration>,
    /// The keys with the most rejected requests.
    ///
    /// The number of keys is set by [`top`](crate::Replay::top); among equal keys, the one that came first is listed first.
    pub top: Vec<RejectedKey>,
    /// Requests per key and minute, over the minutes in which a key came.
    ///
    /// Minutes in which a key did not come are left out: the figures show how busy a key is while it is active, for comparison with a limit per
    /// minute.
    pub per_minute: Distribution,
    /// The minutes in which the rule was asked, in order.
    ///
    /// Minutes without a request are left out.
    pub minutes: Vec<RuleMinute>,
    /// The requests that each algorithm alone would have rejected, if a comparison was requested.
    ///
    /// Set by [`compare`](crate::Replay::compare).
    pub compared: Vec<Compared>,
    /// The suggested limit, if a suggestion was requested.
    ///
    /// Set by [`suggest`](crate::Replay::suggest).
    pub suggestion: Option<Suggestion>,
    /// The reason why there is no suggestion, although one was requested.
    pub no_suggestion: Option<&'static str>,
    /// Limits with their rejections of ordinary and of unusual requests, if a suggestion was requested and the log has both.
    pub frontier: Option<Frontier>,
}

/// The minute in which most requests were rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Worst {
    /// The beginning of the minute, in microseconds since the Unix epoch.
    #[serde(rename = "at", serialize_with = "moment")]
    pub at_us: u64,
    /// Requests that were rejected in it.
    pub per_minute: u64,
}

/// A key with rejected requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RejectedKey {
    /// The key as it may be shown, or a number if keys are hidden.
    pub key: String,
    /// Its requests.
    pub asked: u64,
    /// Its rejected requests.
    pub rejected: u64,
    /// The quotas that its last request brought, which replaced those of the policy.
    #[serde(rename = "quota")]
    pub quotas: Option<String>,
}

/// The distribution of the number of requests per key and minute.
///
/// Ranks are rounded up, so that each number has actually occurred. All are 0 if no request came. More than 1,048,576 requests of a key in
/// a minute are counted as 1,048,576.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Distribution {
    /// Half of all counts are at most this.
    pub p50: u64,
    /// Nine of ten counts are at most this.
    pub p90: u64,
    /// Ninety-nine of a hundred counts are at most this.
    pub p99: u64,
    /// The highest count.
    pub max: u64,
}

/// A minute of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleMinute {
    /// The beginning of the minute, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// Requests that were asked.
    pub asked: u64,
    /// Requests that were rejected.
    pub rejected: u64,
}

/// The rejections of the same quotas under another algorithm, each alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compared {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The number of rejections, or the reason why the algorithm cannot keep these quotas.
    ///
    /// The error is that of building the policy under the algorithm, such as a limit that is too large for a sliding log.
    pub rejected: Result<u64, String>,
    /// Whether the quotas have lost their burst because the algorithm supports none.
    pub drops_burst: bool,
}

/// The figures of one row so far.
///
/// It grows with the keys and the minutes of its row, and with nothing else.
#[derive(Debug)]
pub(super) struct RowTally {
    pub(super) figures: RuleFigures,
    /// The place of the limit among all.
    pub(super) limit: usize,
    /// The last quotas of each key that had its own, by their number.
    brought: HashMap<u32, u32>,
    /// The figures of each key, by its number.
    per_key: Vec<PerKey>,
    /// The number of key-minutes with each count of requests.
    crowds: Vec<u64>,
}

/// The figures of a key: four numbers, so that all of them are in the line of memory that [`glance`](Tally::glance) has read. They end at
/// 4,294,967,295, which no log of a single key reaches; the sums of a row have no such end.
#[derive(Clone, Copy, Debug, Default)]
struct PerKey {
    asked: u32,
    rejected: u32,
    /// The last minute in which it came, since the epoch.
    minute: u32,
    /// The number of its requests in that minute.
    in_minute: u32,
}

/// Larger crowds are counted as this one.
const LARGEST_CROWD: usize = 1 << 20;

impl RowTally {
    /// A row without requests.
    pub(super) fn new(name: String, limit: usize, policy: Policy, group: Option<KeyGroup>) -> Self {
        let figures = RuleFigures {
            name,
            policy,
            group,
            asked: 0,
            rejected: 0,
            own_quotas: 0,
            rejected_otherwise: None,
            keys: 0,
            rejected_keys: 0,
            worst: None,
            shortest_wait: None,
            longest_wait: None,
            top: Vec::new(),
            per_minute: Distribution::default(),
            minutes: Vec::new(),
            compared: Vec::new(),
            suggestion: None,
            no_suggestion: None,
            frontier: None,
        };
        Self { figures, limit, brought: HashMap::new(), per_key: Vec::new(), crowds: Vec::new() }
    }

    /// A number out of the figures of a key, to bring them into the cache.
    pub(super) fn glance(&self, key: u32) -> u32 {
        self.per_key.get(key as usize).map_or(0, |known| known.asked)
    }

    /// Counts an ask that was decided at this time, by the numbers of its key and of its quotas.
    pub(super) fn count(&mut self, (key, quotas): (u32, u32), at_us: u64, verdict: Verdict) {
        let (index, figures) = (key as usize, &mut self.figures);
        if quotas != OWN_OF_ROW {
            figures.own_quotas += 1;
            self.brought.insert(key, quotas);
        } else if !self.brought.is_empty() {
            self.brought.remove(&key);
        }
        if self.per_key.len() <= index {
            self.per_key.resize(index + 1, PerKey::default());
        }
        let minute = at_us / MINUTE_US;
        let known = &mut self.per_key[index];
        let short = u32::try_from(minute).unwrap_or(u32::MAX);
        if known.minute != short {
            let crowd = std::mem::take(&mut known.in_minute);
            known.minute = short;
            crowded(&mut self.crowds, crowd);
        }
        known.in_minute += 1;
        known.asked = known.asked.saturating_add(1);
        figures.asked += 1;
        if figures.minutes.last().is_none_or(|last| last.at_us != minute * MINUTE_US) {
            figures.minutes.push(RuleMinute { at_us: minute * MINUTE_US, asked: 0, rejected: 0 });
        }
        let last = figures.minutes.last_mut();
        let is_rejected = matches!(verdict, Verdict::Rejected(_));
        if let Some(last) = last {
            last.asked += 1;
            last.rejected += u64::from(is_rejected);
        }
        if let Verdict::Rejected(wait) = verdict {
            known.rejected = known.rejected.saturating_add(1);
            figures.rejected += 1;
            if let Some(wait) = wait.map(Duration::from_micros) {
                figures.shortest_wait = Some(figures.shortest_wait.map_or(wait, |known| known.min(wait)));
                figures.longest_wait = figures.longest_wait.max(Some(wait));
            }
        }
    }

    /// The sums over all keys. Keys are shown by their place in the list unless `key` gives the key of a number.
    pub(super) fn figures(
        mut self,
        top: usize,
        (key, brought): (Option<impl Fn(u32) -> Key>, &Brought),
        has_other: bool,
    ) -> RuleFigures {
        for known in &self.per_key {
            crowded(&mut self.crowds, known.in_minute);
        }
        let mut figures = self.figures;
        figures.keys = self.per_key.iter().filter(|known| known.asked > 0).count() as u64;
        let mut heaviest: Vec<(u32, PerKey)> = (0..).zip(self.per_key).collect();
        heaviest.retain(|(_, known)| known.rejected > 0);
        figures.rejected_keys = heaviest.len() as u64;
        // Among equal keys, the one that came first is listed first.
        heaviest.sort_unstable_by_key(|(key, known)| (Reverse((known.rejected, known.asked)), *key));
        let top = heaviest.iter().take(top).zip(1..).map(|((number, known), place)| RejectedKey {
            key: key.as_ref().map_or_else(|| format!("key {place}"), |key| key(*number).shown()),
            asked: known.asked.into(),
            rejected: known.rejected.into(),
            quotas: self.brought.get(number).and_then(|own| brought.quotas(*own)).map(|own| own.to_string()),
        });
        figures.top = top.collect();
        let worst = figures.minutes.iter().rev().max_by_key(|minute| minute.rejected);
        let worst = worst.filter(|worst| worst.rejected > 0);
        figures.worst = worst.map(|worst| Worst { at_us: worst.at_us, per_minute: worst.rejected });
        let otherwise = figures.rejected_otherwise.unwrap_or(0);
        figures.rejected_otherwise = has_other.then_some(otherwise);
        figures.per_minute = distribution(&self.crowds);
        figures
    }
}

/// Counts a minute in which a key came this often.
fn crowded(crowds: &mut Vec<u64>, crowd: u32) {
    let crowd = usize::try_from(crowd).unwrap_or(usize::MAX).min(LARGEST_CROWD);
    if crowd == 0 {
        return;
    }
    if crowds.len() <= crowd {
        crowds.resize(crowd + 1, 0);
    }
    crowds[crowd] += 1;
}

/// Quantiles by rank, rounded up: the least crowd that has at least this share of all minutes at or below it.
fn distribution(crowds: &[u64]) -> Distribution {
    let all: u64 = crowds.iter().sum();
    let quantile = |hundredths: u64| {
        let rank = (all * hundredths).div_ceil(100);
        let mut seen = 0;
        let found = (0_u64..).zip(crowds).find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        found.map_or(0, |(crowd, _)| crowd)
    };
    let max = crowds.len().saturating_sub(1) as u64;
    match all {
        0 => Distribution::default(),
        _ => Distribution { p50: quantile(50), p90: quantile(90), p99: quantile(99), max },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowds_are_counted_per_key_and_minute() {
        let policy = Policy::gcra("p", "5/min").build().unwrap();
        let mut tally = RowTally::new("rule".to_owned(), 0, policy, None);
        // One key comes three times in a minute and once in the next, ten others come once.
        for at_us in [0, 1, 2, MINUTE_US] {
            tally.count((0, OWN_OF_ROW), at_us, Verdict::Room);
        }
        for key in 1..=10 {
            tally.count((key, OWN_OF_ROW), MINUTE_US, Verdict::Room);
        }
        tally.count((0, OWN_OF_ROW), 5 * MINUTE_US, Verdict::Rejected(Some(7)));
        let figures = tally.figures(1, (None::<fn(u32) -> Key>, &Brought::default()), false);
        assert_eq!(figures.per_minute, Distribution { p50: 1, p90: 1, p99: 3, max: 3 });
        assert_eq!((figures.asked, figures.rejected, figures.keys, figures.rejected_keys), (15, 1, 11, 1));
        assert_eq!(
            figures.top,
            [RejectedKey { key: "key 1".to_owned(), asked: 5, rejected: 1, quotas: None }]
        );
        assert_eq!(figures.worst, Some(Worst { at_us: 5 * MINUTE_US, per_minute: 1 }));
        assert_eq!(figures.shortest_wait, Some(Duration::from_micros(7)));
    }
}
