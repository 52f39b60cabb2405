//! From lines to asks: what each line asks of the limits, before any of it is decided.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_core::{Key, RateLimiter};
use sluicegate_tower::limits::{Limits, Meeting, Met, NoAsk};
use smallvec::SmallVec;

use crate::court::Ask;
use crate::format::Format;
use crate::lines::Batch;
use crate::order::Timed;
use crate::request::Head;

/// What a request asks.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) status: Option<u16>,
    pub(crate) asks: SmallVec<[Ask; 1]>,
}

/// The rows of all limits: one for each policy that a limit may ask.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) limits: Limits,
    /// Of each limit, in which row each of its limiters is; none if only other rules are replayed.
    rows: Arc<[Vec<(RateLimiter, usize)>]>,
    /// All limiters, also those of other rules.
    all: Arc<[RateLimiter]>,
}

/// A row that is to be counted: the rule, the place of its limit, and the limiter.
pub(crate) type Named = (String, usize, RateLimiter);

impl Rows {
    pub(crate) fn of(limits: Limits, only: &[String]) -> (Self, Vec<Named>) {
        let mut named: Vec<Named> = Vec::new();
        let mut rows = Vec::new();
        let mut all: Vec<RateLimiter> = Vec::new();
        for (place, (name, limiters)) in limits.limiters().enumerate() {
            let mut own = Vec::new();
            for limiter in limiters {
                if !all.iter().any(|known| known.is(limiter)) {
                    all.push(limiter.clone());
                }
            }
            if only.is_empty() || only.contains(&name) {
                for limiter in limiters {
                    own.push((limiter.clone(), named.len()));
                    named.push((name.clone(), place, limiter.clone()));
                }
            }
            rows.push(own);
        }
        (Self { limits, rows: rows.into(), all: all.into() }, named)
    }

    fn row(&self, limit: usize, limiter: &RateLimiter) -> Option<usize> {
        self.rows[limit].iter().find(|(known, _)| known.is(limiter)).map(|(_, row)| *row)
    }

    /// The place of a limiter among all.
    fn place(&self, limiter: &RateLimiter) -> Option<usize> {
        self.all.iter().position(|known| known.is(limiter))
    }
}

/// Which lines are read, and how much of them is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    /// From when, in microseconds.
    pub(crate) since_us: Option<u64>,
    /// Until before when.
    pub(crate) until_us: Option<u64>,
    /// A later time cannot be true.
    pub(crate) latest_us: Option<u64>,
    /// Whether lines that are not understood are told by their number alone.
    pub(crate) hides_lines: bool,
}

/// Reads lines in one format.
pub(crate) struct Reader {
    format: Format,
    rows: Rows,
    span: Span,
    head: Head,
    pub(crate) counts: Counts,
}

/// How many lines came to what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) read: u64,
    /// Lines before or after the time that was asked for.
    pub(crate) outside: u64,
    pub(crate) exempt: u64,
    pub(crate) blocked: u64,
    pub(crate) not_understood: u64,
    /// The first of these: the number, why, and the line unless lines are hidden.
    pub(crate) shown: Vec<(u64, &'static str, Option<String>)>,
    /// Why a limit was not asked, and how often.
    pub(crate) left_out: HashMap<(usize, String), u64>,
}

impl Counts {
    /// Both together.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.read += other.read;
        self.outside += other.outside;
        self.exempt += other.exempt;
        self.blocked += other.blocked;
        self.not_understood += other.not_understood;
        self.shown.extend(other.shown);
        self.shown.sort_unstable_by_key(|(number, ..)| *number);
        self.shown.truncate(SHOWN);
        for (why, count) in other.left_out {
            *self.left_out.entry(why).or_default() += count;
        }
        self
    }
}

/// How many lines are shown that were not understood.
const SHOWN: usize = 10;
/// How much of each.
const SHOWN_CHARS: usize = 160;

impl Reader {
    pub(crate) fn new(format: Format, rows: Rows, span: Span) -> Self {
        Self { format, rows, span, head: Head::default(), counts: Counts::default() }
    }

    /// What the lines of a batch ask: nothing where they are outside of the time, or not understood.
    pub(crate) fn batch(&mut self, batch: &Batch) -> Vec<Timed<Asked>> {
        let mut all = Vec::new();
        for (number, line) in batch.lines() {
            self.counts.read += 1;
            let text = String::from_utf8_lossy(line.unwrap_or_else(|begin| begin));
            let asked = if line.is_ok() { self.asked(&text) } else { Err("it is longer than 256 KiB") };
            match asked {
                Ok(asked) => all.extend(asked),
                Err(why) => self.not_understood(number, why, &text),
            }
        }
        all
    }

    fn not_understood(&mut self, number: u64, why: &'static str, line: &str) {
        self.counts.not_understood += 1;
        if self.counts.shown.len() < SHOWN {
            // A log holds what clients write: none of it may reach a terminal as it is.
            let shown = || line.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
            self.counts.shown.push((number, why, (!self.span.hides_lines).then(shown)));
        }
    }

    fn asked(&mut self, line: &str) -> Result<Option<Timed<Asked>>, &'static str> {
        let entry = self.format.parse(line)?;
        let moment = entry.arrival()?;
        let Span { since_us, until_us, latest_us, .. } = self.span;
        if latest_us.is_some_and(|latest| moment.us > latest) {
            return Err("its time has not come yet");
        }
        let request = self.head.of(&entry)?;
        if since_us.is_some_and(|since| moment.us < since) || until_us.is_some_and(|until| moment.us >= until)
        {
            self.counts.outside += 1;
            return Ok(None);
        }
        let mut asks = SmallVec::new();
        let (mut enforced, mut asked_of) = (SmallVec::<[usize; 4]>::new(), SmallVec::<[usize; 4]>::new());
        let mut asks_twice = false;
        let (rows, left_out) = (&self.rows, &mut self.counts.left_out);
        let mut leave_out = |limit: usize, why: &str| match left_out.get_mut(&(limit, why.to_owned())) {
            Some(count) => *count += 1,
            None => _ = left_out.insert((limit, why.to_owned()), 1),
        };
        let meeting = rows.limits.meet(request, |Met { limit, asks: met, .. }| {
            if let Ok(met) = &met
                && met.is_enforced
            {
                let place = rows.place(met.limiter);
                asks_twice |= place.is_some_and(|place| enforced.contains(&place));
                enforced.extend(place);
            }
            if rows.rows[limit].is_empty() {
                return;
            }
            match met {
                // The service has seen more of the request than the log has kept.
                Ok(met) if *met.key == Key::shared() => leave_out(limit, NO_KEY),
                Ok(met) => {
                    let row = rows.row(limit, met.limiter);
                    asked_of.extend(row.map(|_| limit));
                    asks.extend(row.map(|row| Ask {
                        row,
                        key: met.key.clone(),
                        cost: met.cost,
                        is_enforced: met.is_enforced,
                    }));
                }
                Err(NoAsk::NoKey(missing)) => leave_out(limit, missing.reason()),
                Err(_) => leave_out(limit, "the limit refuses such requests whatever they have spent"),
            }
        });
        match meeting {
            Meeting::Exempt => self.counts.exempt += 1,
            Meeting::Blocked => self.counts.blocked += 1,
            Meeting::Limits => {}
            _ => leave_out(0, "what the limits ask for is not known at once"),
        }
        if asks_twice {
            asked_of.iter().for_each(|limit| leave_out(*limit, TWICE));
            asks.clear();
        }
        let asked = Asked { status: entry.status, asks };
        Ok(Some(Timed { at_us: moment.us, is_whole: moment.is_whole, what: asked }))
    }
}

const TWICE: &str = "the request asks one policy twice, which the service answers with 500";
const NO_KEY: &str = "the log does not say the key";
