//! The log's requests in their order, decided again and counted.

use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::{Algorithm, Key, Policy, Quota};
use sluicegate_tower::limits::Limits;

use crate::court::{Ask, Court, Verdict, Verdicts, gives_back};
use crate::error::ReplayError;
use crate::figures::{Compared, RuleFigures, Tally};
use crate::order::{Timed, spread};
use crate::read::{Asked, Named};
use crate::record::{Event, Record};
use crate::replay::{Settings, WithinSecond};
use crate::suggest::suggest;
use crate::trial;

/// Algorithms that are compared.
const COMPARED: [Algorithm; 6] = [
    Algorithm::Gcra,
    Algorithm::FixedWindow(Anchor::Epoch),
    Algorithm::SlidingCounter,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket(Refill::Greedy),
    Algorithm::TokenBucket(Refill::Interval),
];

/// Why a row has no suggestion.
const TOO_LARGE: &str =
    "the log is too large to keep what a limit is looked for in: use --only, --since and --until";
const NONE_IS_ENOUGH: &str = "no limit that the policy can have rejects as little";

/// Memory for what `--suggest` keeps.
const RECORD_BYTES: usize = 256 << 20;

pub(crate) struct Decider {
    limits: Limits,
    /// The place of the limit of each row.
    limit_of: Vec<usize>,
    rows: Vec<Tally>,
    court: Court,
    /// With whole seconds taken the other way.
    other: Option<Court>,
    alone: Vec<Alone>,
    record: Option<Record>,
    is_spread: bool,
    has_whole: bool,
    verdicts: Verdicts,
    others: Verdicts,
    pub(crate) span: Option<(u64, u64)>,
}

/// All rows under one algorithm, each alone.
struct Alone {
    algorithm: Algorithm,
    court: Court,
    rows: Vec<AloneRow>,
}

struct AloneRow {
    /// The place in the court, or why there is none.
    place: Result<usize, String>,
    drops_burst: bool,
    rejected: u64,
}

impl Decider {
    pub(crate) fn new(limits: Limits, named: Vec<Named>, settings: &Settings) -> Result<Self, ReplayError> {
        let rows: Vec<Tally> = named
            .into_iter()
            .map(|(name, limit, limiter)| Tally::new(name, limit, limiter.policy().as_ref().clone()))
            .collect();
        let court = || {
            let court = Court::new(rows.iter().map(|row| &row.policy)).map_err(ReplayError::limits)?;
            let giving = rows.iter().enumerate().filter(|(_, row)| limits.may_give_back(row.limit));
            giving.for_each(|(row, _)| court.keep_accounts(row));
            Ok(court)
        };
        let compared = if settings.compares { &COMPARED[..] } else { &[] };
        let alone = compared
            .iter()
            .map(|algorithm| Alone::new(*algorithm, &rows, &limits))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            court: court()?,
            other: Some(court()?),
            alone,
            record: settings.suggests.map(|_| Record::new(rows.len(), RECORD_BYTES)),
            is_spread: settings.within_second == WithinSecond::Spread,
            has_whole: false,
            verdicts: Verdicts::new(),
            others: Verdicts::new(),
            span: None,
            limit_of: rows.iter().map(|row| row.limit).collect(),
            limits,
            rows,
        })
    }

    /// Decides all requests of one second.
    pub(crate) fn second(&mut self, second: &[Timed<Asked>]) {
        for (place, timed) in second.iter().enumerate() {
            let (spread_us, together_us) = (spread(second, place), timed.at_us);
            let (at_us, other_us) =
                if self.is_spread { (spread_us, together_us) } else { (together_us, spread_us) };
            let span = self.span.get_or_insert((at_us, at_us));
            *span = (span.0.min(at_us), span.1.max(at_us));
            self.has_whole |= timed.is_whole;
            self.request(at_us, other_us, &timed.what);
        }
    }

    fn request(&mut self, at_us: u64, other_us: u64, Asked { status, asks }: &Asked) {
        if asks.is_empty() {
            return;
        }
        let (limits, limit_of) = (&self.limits, &self.limit_of);
        let given_back = |row: usize| gives_back(limits, limit_of[row], *status);
        self.court.decide(at_us, asks, given_back, &mut self.verdicts);
        if let Some(other) = self.other.as_ref().filter(|_| self.has_whole) {
            other.decide(other_us, asks, given_back, &mut self.others);
        }
        for alone in &mut self.alone {
            alone.decide(at_us, asks, given_back);
        }
        let request = self.record.as_mut().map(|record| record.request());
        for (place, ask) in asks.iter().enumerate() {
            let row = &mut self.rows[ask.row];
            if matches!(self.others.get(place), Some(Verdict::Rejected(_))) {
                row.rejected_otherwise += 1;
            }
            if self.verdicts[place] == Verdict::NotAsked {
                continue;
            }
            let key = row.count(&ask.key, at_us, self.verdicts[place]);
            if let (Some(record), Some(request)) = (&mut self.record, request) {
                let cost = u32::try_from(ask.cost).unwrap_or(u32::MAX);
                let gives_back = given_back(ask.row);
                record.keep(ask.row, Event { key, cost, request, gives_back, at_us }, &ask.key);
            }
        }
        self.others.clear();
    }

    /// Keys that had to be forgotten before they were at rest.
    pub(crate) fn forgotten(&self) -> u64 {
        self.court.forgotten()
    }

    /// All that was counted.
    pub(crate) fn finish(mut self, settings: &Settings) -> Vec<RuleFigures> {
        let record = self.record.take();
        let tallies = std::mem::take(&mut self.rows);
        let figures = |tally: Tally| {
            tally.figures(settings.top, settings.hides_keys, self.other.is_some() && self.has_whole)
        };
        let mut rules: Vec<RuleFigures> = tallies.into_iter().map(figures).collect();
        for (place, rule) in rules.iter_mut().enumerate() {
            rule.compared = self.alone.iter().map(|alone| alone.compared(place)).collect();
        }
        if let (Some(record), Some(share)) = (record, settings.suggests) {
            suggest_all(record, share, &mut rules);
        }
        rules
    }
}

/// Finds a limit for each row by itself, and replays all of them together.
fn suggest_all(mut record: Record, share: crate::share::Share, rules: &mut [RuleFigures]) {
    // As they were asked, before they are put together by key.
    let mut asked: Vec<(u32, usize, Event)> = Vec::new();
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
            rule.suggestion = suggest(&rule.policy, kept, share);
            rule.no_suggestion = rule.suggestion.is_none().then_some(NONE_IS_ENOUGH);
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
    // Rows of one policy may be told different limits; they share no bucket then, so there is nothing to replay together.
    let Ok(court) = Court::new(&policies) else { return };
    let gives_back = |row: usize| record.rows[row].events.iter().any(|event| event.gives_back);
    (0..rules.len()).filter(|row| gives_back(*row)).for_each(|row| court.keep_accounts(row));
    let mut rejected = vec![0_u64; rules.len()];
    let mut verdicts = Verdicts::new();
    for request in asked.chunk_by(|one, next| one.0 == next.0) {
        let asks: Vec<Ask> = request
            .iter()
            .map(|(_, row, event)| Ask {
                row: *row,
                key: record.keys[*row].get(event.key as usize).cloned().unwrap_or_else(Key::shared),
                cost: event.cost.into(),
                is_enforced: rules[*row].policy.mode() == sluicegate_core::policy::PolicyMode::Enforce,
            })
            .collect();
        let given_back = |row| request.iter().any(|(_, asked, event)| *asked == row && event.gives_back);
        court.decide(request[0].2.at_us, &asks, given_back, &mut verdicts);
        for (ask, verdict) in asks.iter().zip(&verdicts) {
            rejected[ask.row] += u64::from(matches!(verdict, Verdict::Rejected(_)));
        }
    }
    for (rule, rejected) in rules.iter_mut().zip(rejected) {
        if let Some(suggestion) = &mut rule.suggestion {
            suggestion.together = Some(rejected);
        }
    }
}

impl Alone {
    fn new(algorithm: Algorithm, all: &[Tally], limits: &Limits) -> Result<Self, ReplayError> {
        let mut policies: Vec<Policy> = Vec::new();
        let rows = all.iter().enumerate().map(|(number, row)| {
            let (policy, drops_burst) = under(algorithm, number, &row.policy);
            let place = policy.map(|policy| {
                policies.push(policy);
                policies.len() - 1
            });
            AloneRow { place, drops_burst, rejected: 0 }
        });
        let rows: Vec<AloneRow> = rows.collect();
        let court = Court::new(&policies).map_err(ReplayError::limits)?;
        for (row, _) in rows.iter().zip(all).filter(|(_, tally)| limits.may_give_back(tally.limit)) {
            row.place.iter().for_each(|place| court.keep_accounts(*place));
        }
        Ok(Self { algorithm, court, rows })
    }

    fn decide(&mut self, at_us: u64, asks: &[Ask], given_back: impl Fn(usize) -> bool) {
        self.court.set(at_us);
        for ask in asks {
            let row = &mut self.rows[ask.row];
            if let Ok(place) = &row.place {
                let verdict = self.court.check(*place, &ask.key, ask.cost, given_back(ask.row));
                row.rejected += u64::from(matches!(verdict, Verdict::Rejected(_)));
            }
        }
    }

    fn compared(&self, row: usize) -> Compared {
        let AloneRow { place, drops_burst, rejected } = &self.rows[row];
        Compared {
            algorithm: self.algorithm,
            rejected: place.clone().map(|_| *rejected),
            drops_burst: *drops_burst,
        }
    }
}

/// The policy under another algorithm, without bursts if that knows none.
fn under(algorithm: Algorithm, number: usize, policy: &Policy) -> (Result<Policy, String>, bool) {
    let name = format!("row-{number}");
    let quotas = trial::quotas(policy);
    let build =
        |quotas: &[Quota]| trial::copy(policy, &name, algorithm, quotas).map_err(|error| error.to_string());
    let plain: Vec<Quota> = quotas.iter().map(|quota| Quota::new(quota.limit(), quota.period())).collect();
    let has_burst = quotas.iter().any(|quota| quota.burst_size() != quota.limit());
    match build(&quotas) {
        Err(_) if has_burst => (build(&plain), true),
        built => (built, false),
    }
}
