//! Puts requests in the order of time: servers log them as they end, and several servers may write one log.
//!
//! nginx and Apache write a line when the response has ended, so a request that took a minute comes after those of that minute,
//! and a log that several processes write is only roughly in order. Limits depend on the order, so it is restored as far as a bounded
//! buffer allows.

use sluicegate_core::algorithm::{NEVER, Rule, State};
use sluicegate_core::{OnExceeded, Policy};

use crate::judge::evaluator::{Evaluator, RowAsk, Verdict};
use crate::judge::keys::RowKeys;
use crate::read::{Brought, Came};
use crate::replay::WithinSecond;

/// The seconds of log time that a line may be late and still be sorted in, whatever the traffic.
const REACH: u64 = 10;

/// The number of asks that are held back at first. If ten seconds have more, all of them are held back.
const HELD: usize = 1 << 16;

/// Requests are passed on by whole seconds.
const SECOND_US: u64 = 1_000_000;

/// A request's ask of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedAsk {
    pub(super) row: u32,
    /// The number of the key in its row.
    pub(super) key: u32,
    /// The cost in units of the policy of its row.
    pub(super) cost: u64,
    pub(super) is_enforced: bool,
    /// The number of the key's quotas.
    pub(super) quotas: u32,
}

/// An ask, as it waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedAsk {
    pub(super) came: Came,
    /// Whether it is the first of its request.
    is_first: bool,
    /// `None` for a request that asks nothing.
    pub(super) asks: Option<NumberedAsk>,
}

/// Puts requests in order: those that are at most ten seconds behind the newest one, and at least the last 32,768 in any case, so that a
/// small log is always sorted completely. A request that comes later counts as of the earliest moment that is still open.
#[derive(Debug)]
pub(crate) struct Order {
    /// Everything that was not handed on yet; only its beginning is sorted.
    held: Vec<QueuedAsk>,
    /// At this number of held asks, the older half is handed on. It doubles when ten seconds have more than that.
    most: usize,
    /// The first second that was not handed on.
    open: u64,
    /// Requests that came after their second was handed on.
    pub(crate) late: u64,
}

impl Default for Order {
    fn default() -> Self {
        Self::holding(HELD)
    }
}

impl Order {
    /// Holds this many asks back before it hands any on.
    fn holding(most: usize) -> Self {
        Self { held: Vec::with_capacity(most), most, open: 0, late: 0 }
    }

    /// Takes a request, and hands on the seconds that are complete: all asks of one, in order.
    ///
    /// A request of a second that was already handed on counts as late, and as of the earliest moment that is still open.
    pub(crate) fn push(
        &mut self,
        mut came: Came,
        asks: impl IntoIterator<Item = NumberedAsk>,
        complete: impl FnMut(&[QueuedAsk]),
    ) {
        if came.at_us / SECOND_US < self.open {
            self.late += 1;
            came.at_us = self.open * SECOND_US;
        }
        let mut asks = asks.into_iter();
        self.held.push(QueuedAsk { came, is_first: true, asks: asks.next() });
        self.held.extend(asks.map(|asks| QueuedAsk { came, is_first: false, asks: Some(asks) }));
        if self.held.len() >= self.most {
            self.hand_on_half(complete);
        }
    }

    /// Hands on the older half, as far as it is out of reach.
    ///
    /// Handing on half, not one by one, lets each ask take part in about two sorts, however long the log is. If less than a quarter can be
    /// handed on, ten seconds are too much for the room, and the room doubles.
    fn hand_on_half(&mut self, complete: impl FnMut(&[QueuedAsk])) {
        self.sort();
        let second = |held: &QueuedAsk| held.came.at_us / SECOND_US;
        let (Some(middle), Some(newest)) = (self.held.get(self.held.len() / 2), self.held.last()) else {
            return;
        };
        let until = second(middle).min(second(newest).saturating_sub(REACH));
        let complete_to = self.held.partition_point(|held| second(held) < until);
        if complete_to < self.held.len() / 4 {
            self.most *= 2;
        }
        self.open = self.open.max(until);
        hand_on(&self.held[..complete_to], complete);
        self.held.drain(..complete_to);
    }

    /// Hands on all that is left.
    pub(crate) fn finish(&mut self, complete: impl FnMut(&[QueuedAsk])) {
        self.sort();
        hand_on(&self.held, complete);
        self.held.clear();
    }

    /// Sorts by time. Equal times keep their order, and so do the asks of a request.
    fn sort(&mut self) {
        if !self.held.is_sorted_by_key(|held| held.came.at_us) {
            self.held.sort_by_key(|held| held.came.at_us);
        }
    }
}

/// Hands on second by second.
fn hand_on(held: &[QueuedAsk], complete: impl FnMut(&[QueuedAsk])) {
    held.chunk_by(|one, next| one.came.at_us / SECOND_US == next.came.at_us / SECOND_US).for_each(complete);
}

/// The requests of a second, each as its asks.
///
/// A request that asks nothing is held without an ask, so that it keeps its place among those that are spread.
pub(super) fn requests(second: &[QueuedAsk]) -> impl Iterator<Item = &[QueuedAsk]> {
    second.chunk_by(|_, next| !next.is_first)
}

/// The moment of the request at this place of a second, if requests with whole seconds are spread over it.
pub(super) fn spread(came: Came, place: u64, requests: u64) -> u64 {
    if came.is_whole { came.at_us + place * SECOND_US / requests } else { came.at_us }
}

// The requests of one second, decided in their order: [`Second`].
//
// Requests are decided by the second, because those with whole seconds can be spread over it only when all of them are known. The lists
// are filled again for each second, so that none is allocated twice.

/// The requests of one second, and everything that they ask.
#[derive(Default)]
pub(super) struct Second {
    requests: Vec<SecondRequest>,
    /// The asks of all requests, one after the other.
    asks: Vec<NumberedAsk>,
    /// The asks with their keys, if a part needs them.
    named: Vec<RowAsk>,
}

/// A request, with its asks among all.
#[derive(Clone, Copy)]
pub(super) struct SecondRequest {
    pub(super) came: Came,
    /// The range of its asks among all.
    begin: usize,
    end: usize,
}

/// Decides requests, with whole seconds taken in both ways.
///
/// Both variants give the same verdicts, which a test compares: tables take less memory and time, and evaluators can do everything that a store
/// can.
pub(super) enum Judge {
    /// Decides by the states of keys alone.
    StateTables(StateTables),
    /// Decides by a store for each way: spread, and together.
    Evaluators(Box<[Evaluator; 2]>),
}

impl Judge {
    /// The number of keys that the store of this way had no room for, and forgot before they were at rest.
    pub(super) fn forgotten(&self, within: WithinSecond) -> u64 {
        match self {
            Self::StateTables(_) => 0,
            Self::Evaluators(evaluators) => evaluators[within as usize].forgotten(),
        }
    }
}

impl Second {
    /// Replaces the previous second; with keys and their quotas, if they are given.
    pub(super) fn fill(&mut self, held: &[QueuedAsk], keys: Option<(&RowKeys, &Brought)>) {
        let Self { requests: all, asks, named } = self;
        all.clear();
        asks.clear();
        named.clear();
        for request in requests(held) {
            let begin = asks.len();
            asks.extend(request.iter().filter_map(|held| held.asks));
            all.push(SecondRequest { came: request[0].came, begin, end: asks.len() });
        }
        let Some((keys, brought)) = keys else { return };
        named.extend(asks.iter().map(|NumberedAsk { row, key, cost, is_enforced, quotas }| {
            let (row, cost, is_enforced) = (*row as usize, *cost, *is_enforced);
            RowAsk { row, key: keys.key(row, *key), cost, is_enforced, quotas: brought.quotas(*quotas) }
        }));
    }

    /// Each request, and its moment if whole seconds are taken in this way.
    pub(super) fn requests(&self, within: WithinSecond) -> impl Iterator<Item = (u64, SecondRequest)> {
        let all = self.requests.len() as u64;
        (0..).zip(&self.requests).map(move |(place, request)| match within {
            WithinSecond::Spread => (spread(request.came, place, all), *request),
            WithinSecond::Together => (request.came.at_us, *request),
        })
    }

    /// The asks of all requests.
    pub(super) fn all(&self) -> &[NumberedAsk] {
        &self.asks
    }

    /// The asks of a request, each with its place among all.
    pub(super) fn asks(&self, request: SecondRequest) -> impl Iterator<Item = (usize, &NumberedAsk)> {
        (request.begin..request.end).zip(&self.asks[request.begin..request.end])
    }

    /// The asks of a request with their keys, if those were given.
    pub(super) fn named(&self, request: SecondRequest) -> &[RowAsk] {
        &self.named[request.begin..request.end]
    }

    /// Decides all requests with whole seconds taken in this way. `gives_back` says for a row and a status whether its limit gives back.
    ///
    /// `verdicts` is filled with one verdict for each ask, in their order.
    pub(super) fn decide(
        &self,
        within: WithinSecond,
        judge: &mut Judge,
        gives_back: impl Fn(usize, Option<u16>) -> bool,
        verdicts: &mut Vec<Verdict>,
    ) {
        verdicts.clear();
        verdicts.resize(self.asks.len(), Verdict::NotAsked);
        let evaluator = match judge {
            Judge::StateTables(tables) => {
                for (at_us, SecondRequest { begin, end, .. }) in self.requests(within) {
                    tables.decide(within, at_us, &self.asks[begin..end], &mut verdicts[begin..end]);
                }
                return;
            }
            Judge::Evaluators(evaluators) => &evaluators[within as usize],
        };
        for (at_us, request) in self.requests(within) {
            let given_back = |row| gives_back(row, request.came.status);
            let place = request.begin..request.end;
            evaluator.decide(at_us, &self.named[place.clone()], given_back, &mut verdicts[place]);
        }
    }
}

// Decides by numbers of keys instead of keys: [`StateTables`].
//
// # Where they are used
// Logs of servers nearly always allow it: the policies refuse at once, have no suspensions, do not count rejected requests, keep no logs
// of moments and have no bound on their keys, keys start with a whole burst, and the rules give nothing back. If one policy is of another
// kind, or is shared by two rules, an [`Evaluator`](crate::judge::evaluator::Evaluator) decides everything, because requests are decided as wholes.
//
// # Memory
// 32 bytes for each quota of a key, in a list by the number of the key in its row: no key has to be searched, none is forgotten, and two
// quotas of one key are neighbours.

/// A state for each key and quota of each row, once for each way to treat whole seconds.
///
/// A store finds each key by its hash. Keys of a replay have numbers, so there is nothing to search, and both ways of a key are in one
/// place: deciding a log in both costs hardly more than in one. The rules decide, as in every store.
#[derive(Debug)]
pub(super) struct StateTables(Vec<StateTable>);

/// The states of a row. The states of a key are together, one for each way and quota.
#[derive(Debug)]
struct StateTable {
    /// One rule for each quota of the policy.
    rules: Vec<Rule>,
    /// Ordered by key, then by way, then by quota; as long as the highest number of a key that was decided.
    states: Vec<State>,
    /// Whether it is asked whatever the others refuse.
    is_alone: bool,
}

/// The number of ways to treat whole seconds: spread and together. Each has its own states, because one may refuse what the other admits.
const WAYS: usize = 2;

impl StateTables {
    /// State tables for these policies, one per row; `None` if the states alone cannot decide.
    pub(super) fn of<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> Option<Self> {
        let mut names = Vec::new();
        let book = |policy: &'a Policy| {
            // Rows of one policy share their keys, and have numbers of their own for them.
            let is_shared = names.contains(&policy.name());
            names.push(policy.name());
            let rules = policy.quotas().iter().map(|quota| *quota.rule()).collect();
            (is_plain(policy) && !is_shared).then_some(StateTable {
                rules,
                states: Vec::new(),
                is_alone: false,
            })
        };
        policies.into_iter().map(book).collect::<Option<_>>().map(Self)
    }

    /// Decides a request: the policies that are enforced together, then each that is only tried out.
    ///
    /// `now_us` is in microseconds since the Unix epoch and never goes back within one way. Enforced policies are looked at first and spent
    /// only if all of them have room, so that a refused request spends nothing. `verdicts` has as many places as `asks`.
    pub(super) fn decide(
        &mut self,
        within: WithinSecond,
        now_us: u64,
        asks: &[NumberedAsk],
        verdicts: &mut [Verdict],
    ) {
        let (way, mut passes) = (within as usize, true);
        for (ask, verdict) in asks.iter().zip(&mut *verdicts).filter(|(ask, _)| ask.is_enforced) {
            *verdict = self.book(ask).verdict(way, ask, now_us);
            passes &= *verdict == Verdict::Room;
        }
        for (ask, verdict) in asks.iter().zip(verdicts) {
            if !ask.is_enforced {
                let is_asked = passes || self.book(ask).is_alone;
                *verdict =
                    if is_asked { self.book(ask).verdict(way, ask, now_us) } else { Verdict::NotAsked };
            }
            if *verdict == Verdict::Room && (passes || self.book(ask).is_alone) {
                self.book(ask).spend(way, ask, now_us);
            }
        }
    }

    /// Asks a row whatever the others refuse.
    pub(super) fn decide_alone(&mut self, row: usize) {
        self.0[row].is_alone = true;
    }

    /// A number out of the state of each key that is asked for, to bring the states into the cache.
    pub(super) fn glance(&self, asks: &[NumberedAsk]) -> u64 {
        asks.iter().fold(0, |sum, ask| {
            let StateTable { rules, states, .. } = &self.0[ask.row as usize];
            // The first and the last: a single quota has no others, and they may be in two lines of memory.
            let (begin, length) = (ask.key as usize * WAYS * rules.len(), WAYS * rules.len());
            let of = |place| states.get(place).map_or(0, |state: &State| state.until_us);
            sum ^ of(begin) ^ of(begin + length - 1)
        })
    }

    /// Forgets what all keys have spent.
    ///
    /// The lists keep their memory: a search for a limit decides thousands of keys one after the other, each from rest.
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(|book| book.states.clear());
    }

    /// The states of the row that is asked.
    fn book(&mut self, ask: &NumberedAsk) -> &mut StateTable {
        &mut self.0[ask.row as usize]
    }
}

/// Whether the states of its quotas alone decide on a request: no logs, no turns, no remembered refusals, no newcomers, and no bound on its
/// keys.
fn is_plain(policy: &Policy) -> bool {
    let is_state = |rule: &Rule| rule.log().is_none() && !rule.is_queue() && !rule.begins();
    policy.on_exceeded() == OnExceeded::Deny
        && policy.suspension().is_none()
        && !policy.counts_rejected()
        && policy.table_size().is_none()
        && policy.quotas().iter().all(|quota| is_state(quota.rule()))
}

impl StateTable {
    /// The states of a key in one way.
    #[inline]
    fn states(&mut self, way: usize, key: u32) -> (&[Rule], &mut [State]) {
        let quotas = self.rules.len();
        let begin = (key as usize * WAYS + way) * quotas;
        if self.states.len() < begin + quotas {
            self.states.resize((key as usize + 1) * WAYS * quotas, State::REST);
        }
        (&self.rules, &mut self.states[begin..begin + quotas])
    }

    /// Whether the quotas have room for the cost, and the wait until they have. The quota with the longest wait decides; if one can never
    /// have room, no wait helps. No state changes.
    #[inline]
    fn verdict(&mut self, way: usize, ask: &NumberedAsk, now_us: u64) -> Verdict {
        let (rules, states) = self.states(way, ask.key);
        let opens =
            rules.iter().zip(states).map(|(rule, state)| rule.slot(*state, now_us, ask.cost).opens_us);
        match opens.max().unwrap_or(now_us) {
            NEVER => Verdict::Rejected(None),
            opens_us if opens_us > now_us => Verdict::Rejected(Some(opens_us - now_us)),
            _ => Verdict::Room,
        }
    }

    /// Spends under all quotas, which must have had room at this moment.
    #[inline]
    fn spend(&mut self, way: usize, ask: &NumberedAsk, now_us: u64) {
        let (rules, states) = self.states(way, ask.key);
        for (rule, state) in rules.iter().zip(states) {
            *state = rule.spend(*state, now_us, now_us, ask.cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{NO_CLIENT, OWN_OF_ROW};

    const NOTHING: [NumberedAsk; 0] = [];

    fn came(at_us: u64) -> Came {
        Came { at_us, is_whole: true, status: None, client: NO_CLIENT, agent: 0, path: 0 }
    }

    fn asks(key: u32) -> NumberedAsk {
        NumberedAsk { row: 0, key, cost: 1, is_enforced: true, quotas: OWN_OF_ROW }
    }

    /// The seconds and the places of requests that came in this order, and the number of those that were too late.
    fn ordered(most: usize, seconds: impl IntoIterator<Item = u64>) -> (Vec<(u64, u32)>, u64) {
        let (mut order, mut out) = (Order::holding(most), Vec::new());
        let mut keep = |second: &[QueuedAsk]| {
            assert!(second.iter().all(|held| held.came.at_us == second[0].came.at_us));
            out.extend(second.iter().map(|held| (held.came.at_us / SECOND_US, held.asks.unwrap().key)));
        };
        for (key, second) in (0..).zip(seconds) {
            order.push(came(second * SECOND_US), [asks(key)], &mut keep);
        }
        order.finish(&mut keep);
        (out, order.late)
    }

    #[test]
    fn a_small_log_is_put_in_order_whatever_it_was_and_equal_times_keep_theirs() {
        assert_eq!(
            ordered(HELD, [100, 100_000, 100, 7, 100_000]),
            (vec![(7, 3), (100, 0), (100, 2), (100_000, 1), (100_000, 4)], 0)
        );
        let scrambled = (0..30_000_u64).map(|place| place * 7_919 % 30_000);
        let (seconds, late) = ordered(HELD, scrambled);
        assert!(seconds.is_sorted() && seconds.len() == 30_000 && late == 0);
    }

    #[test]
    fn in_a_large_log_ten_seconds_are_in_reach_however_many_requests_they_have() {
        // A thousand requests a second, each up to ten seconds behind the newest one.
        let scrambled = (0..60_000_u64).map(|place| 100 + place / 1_000 - place * 7_919 % 11);
        let (seconds, late) = ordered(64, scrambled);
        assert!(seconds.is_sorted_by_key(|(second, _)| *second) && seconds.len() == 60_000 && late == 0);
    }

    #[test]
    fn later_lines_count_as_of_the_earliest_moment_that_is_open_and_none_is_lost() {
        let seconds = (0..1_000).map(|second| 100 + second).chain([100, 1_090]);
        let (out, late) = ordered(64, seconds);
        assert!(out.is_sorted_by_key(|(second, _)| *second) && out.len() == 1_002);
        assert_eq!(late, 1, "the last one is within reach");
        let (second, _) = out.iter().find(|(_, key)| *key == 1_000).unwrap();
        assert!((1_000..1_090).contains(second), "{second}");
    }

    #[test]
    fn one_line_of_the_future_makes_no_other_one_late() {
        let seconds = [100, 4_000_000].into_iter().chain((0..10_000).map(|place| 101 + place / 9));
        let (out, late) = ordered(256, seconds);
        assert_eq!((out.len(), late, out.last()), (10_002, 0, Some(&(4_000_000, 1))));
    }

    #[test]
    fn the_asks_of_a_request_stay_together_and_one_that_asks_nothing_has_its_place() {
        let mut order = Order::default();
        order.push(came(5_900_000), [asks(1), asks(2)], |_| {});
        order.push(came(5_100_000), [asks(3), asks(4)], |_| {});
        order.push(came(5_900_000), NOTHING, |_| {});
        let mut seen: Vec<Vec<Option<u32>>> = Vec::new();
        order.finish(|second| {
            let keys =
                |request: &[QueuedAsk]| request.iter().map(|held| held.asks.map(|asks| asks.key)).collect();
            seen.extend(requests(second).map(keys));
        });
        let expected: [Vec<Option<u32>>; 3] = [vec![Some(3), Some(4)], vec![Some(1), Some(2)], vec![None]];
        assert_eq!(seen, expected);
    }

    #[test]
    fn whole_seconds_are_spread_over_theirs_and_finer_times_stay() {
        assert_eq!(
            [0, 1, 2].map(|place| spread(came(7_000_000), place, 3)),
            [7_000_000, 7_333_333, 7_666_666]
        );
        let fine = Came { is_whole: false, ..came(5_900_000) };
        assert_eq!(spread(fine, 1, 2), 5_900_000);
    }
}

#[cfg(test)]
mod tables_tests {
    use sluicegate_core::Key;
    use sluicegate_core::policy::PolicyMode;

    use super::*;
    use crate::judge::evaluator::{Evaluator, RowAsk};
    use crate::judge::random::TestRandom;
    use crate::read::OWN_OF_ROW;

    const POLICIES: [&[(&str, &str)]; 4] = [
        &[("gcra", "3/s burst 5")],
        &[("fixed-window", "4/s"), ("token-bucket", "7/3s burst 2")],
        &[("sliding-counter", "9/2s"), ("gcra", "1/s burst 4")],
        &[
            ("fixed-window-from-first-hit", "3/s"),
            ("token-bucket-interval", "3/s"),
            ("token-bucket-aligned", "5/2s"),
        ],
    ];

    fn policy(row: usize, (algorithm, quota): (&str, &str)) -> Policy {
        let algorithm = algorithm.parse().unwrap();
        Policy::builder(format!("p{row}"), algorithm, quota).and("40/min").build().unwrap()
    }

    #[test]
    fn books_decide_as_a_store_does() {
        let mut random = TestRandom(7);
        let mut rejected = 0;
        for policies in POLICIES {
            let policies: Vec<Policy> =
                policies.iter().enumerate().map(|(row, policy)| self::policy(row, *policy)).collect();
            let mut tables = StateTables::of(&policies).expect("each is plain");
            let evaluators = [(); 2].map(|()| Evaluator::new(&policies).unwrap());
            let mut now_us = 1_000_000_000;
            for step in 0..20_000 {
                now_us += match random.below(5) {
                    0 => 0,
                    1 => 1,
                    2 => 40_000,
                    3 => 300_000,
                    _ => 2_000_000,
                };
                // Some costs never fit.
                let asked: Vec<usize> =
                    (0..policies.len()).filter(|row| *row == 0 || random.below(2) == 0).collect();
                let asks: Vec<NumberedAsk> = asked
                    .into_iter()
                    .map(|row| NumberedAsk {
                        row: u32::try_from(row).unwrap(),
                        key: u32::try_from(random.below(5)).unwrap(),
                        cost: 1 + random.below(7) * random.below(2),
                        is_enforced: random.below(4) > 0,
                        quotas: OWN_OF_ROW,
                    })
                    .collect();
                let named: Vec<RowAsk> = asks
                    .iter()
                    .map(|ask| RowAsk {
                        row: ask.row as usize,
                        key: Key::from(u64::from(ask.key)),
                        cost: ask.cost,
                        is_enforced: ask.is_enforced,
                        quotas: None,
                    })
                    .collect();
                let (mut ours, mut theirs) =
                    (vec![Verdict::NotAsked; asks.len()], vec![Verdict::NotAsked; asks.len()]);
                // Requests of one way do not affect those of the other.
                let (within, evaluator) = match random.below(2) {
                    0 => (WithinSecond::Spread, &evaluators[0]),
                    _ => (WithinSecond::Together, &evaluators[1]),
                };
                tables.decide(within, now_us, &asks, &mut ours);
                evaluator.decide(now_us, &named, |_| false, &mut theirs);
                assert_eq!(ours, theirs, "{policies:?}, step {step}: {asks:?}");
                rejected += ours.iter().filter(|verdict| matches!(verdict, Verdict::Rejected(_))).count();
            }
        }
        assert!(rejected > 20_000, "{rejected}");
    }

    #[test]
    fn where_more_than_states_decides_or_rows_share_a_policy_there_are_no_books() {
        let plain = || Policy::gcra("p", "5/min");
        assert!(StateTables::of(&[plain().mode(PolicyMode::Shadow).build().unwrap()]).is_some());
        for policy in [
            plain().table_size(10),
            plain().count_rejected(),
            plain().suspend(3, "1min", "5min"),
            plain().on_exceeded("wait 2s".parse().unwrap()),
            Policy::sliding_log("p", "5/min"),
            Policy::leaky_queue("p", "5/min"),
        ] {
            let policy = policy.build().unwrap();
            assert!(StateTables::of([&policy]).is_none(), "{policy}");
        }
        let one = plain().build().unwrap();
        assert!(StateTables::of([&one, &one]).is_none());
    }
}
