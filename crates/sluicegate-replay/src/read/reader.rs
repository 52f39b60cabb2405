//! From lines to asks: finds the asks of each line, before any ask is decided.
//!
//! The limits of the service find the asks of a line, with their own conditions, tiers and keys. This does not depend on the units that other
//! lines have spent, so several threads do it; decisions do depend on them, so one thread makes them.
//!
//! # How lines are counted
//! | a line | counts as |
//! |---|---|
//! | that the format cannot read, or whose method or URL HTTP does not have | not understood |
//! | outside of the time that was asked for | outside |
//! | that the limits exempt or block | exempt, blocked |
//! | whose limit finds no key, or that asks more than a service would decide | left out, with the reason |
//! | of any other kind | a request with its asks, or with none |
//!
//! A request that is left out of one limit may still ask another one.

use std::mem;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::USER_AGENT;
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::limits::{Meeting, Met, MetAsk, NoAsk};
use smallvec::SmallVec;

use crate::counts::{Puzzle, ReadCounts, SHOWN};
use crate::read::brought::OWN_OF_ROW;
use crate::read::format::Format;
use crate::read::format::entry::LogEntry;
use crate::read::format::time::TimeReader;
use crate::read::lines::{LONGEST, LineBatch};
use crate::read::request::Head;
use crate::read::rows::{Enforced, RowGroups, Rows};
use crate::read::visit::{NO_CLIENT, RequestMarks, network_of};

/// The moment when a request came, and the status of its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) at_us: u64,
    /// Whether the time was written as a whole second.
    pub(crate) is_whole: bool,
    /// The status of its response.
    pub(crate) status: Option<u16>,
    /// The number of its client, once it has one.
    pub(crate) client: u32,
    /// The buckets of its user agent and its path.
    pub(crate) agent: u16,
    pub(crate) path: u16,
}

/// The requests of a batch, and their asks: one list of each, and the keys in one buffer, because a batch goes from one thread to another.
#[derive(Debug, Default)]
pub(crate) struct ParsedBatch {
    /// All requests, also those that ask nothing: they have their place in a second over which requests are spread.
    requests: Vec<AskedRequest>,
    /// The asks of all requests, one after the other.
    asks: Vec<KeyedAsk>,
    /// The bytes of the keys of all asks, one after the other.
    keys: Vec<u8>,
}

/// A request, and its number of asks.
#[derive(Debug)]
struct AskedRequest {
    came: Came,
    client: Option<IpAddr>,
    asks: usize,
}

/// An ask, whose key has this length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedAsk {
    pub(crate) row: u32,
    pub(crate) is_enforced: bool,
    pub(crate) kind: KeyKind,
    /// The number of its key's quotas.
    pub(crate) quotas: u32,
    /// The number of bytes of `keys` that are its key.
    key: usize,
    pub(crate) cost: u64,
}

impl ParsedBatch {
    /// Adds an ask behind the others.
    pub(crate) fn push(&mut self, row: usize, (key, quotas): (&Key, u32), cost: u64, is_enforced: bool) {
        let (row, bytes) = (u32::try_from(row).unwrap_or(u32::MAX), key.as_bytes());
        self.asks.push(KeyedAsk { row, is_enforced, kind: key.kind(), quotas, key: bytes.len(), cost });
        self.keys.extend_from_slice(bytes);
    }

    /// Each request, the address of its client, and its number of asks.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (Came, Option<IpAddr>, usize)> {
        self.requests.iter().map(|asked| (asked.came, asked.client, asked.asks))
    }

    /// The asks of all requests, one after the other, with their keys.
    pub(crate) fn asks(&self) -> impl Iterator<Item = (KeyedAsk, &[u8])> {
        let mut keys = &self.keys[..];
        self.asks.iter().map(move |wanted| {
            let (key, others) = keys.split_at(wanted.key);
            keys = others;
            (*wanted, key)
        })
    }
}

/// Says which lines are read, and how much of them is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadRange {
    /// The earliest moment that is read, in microseconds.
    pub(crate) since_us: Option<u64>,
    /// The moment before which reading ends.
    pub(crate) until_us: Option<u64>,
    /// The latest time that can be true.
    pub(crate) latest_us: Option<u64>,
    /// Whether lines that are not understood are shown by their number alone.
    pub(crate) hides_lines: bool,
    /// Whether the rules say that clients come through proxies.
    pub(crate) is_behind_proxies: bool,
}

/// The number of characters that are shown of each line that was not understood.
const SHOWN_CHARS: usize = 160;

/// Reads lines in one format.
pub(crate) struct LineParser {
    format: Format,
    /// The rows and the limits of the file. All threads share them, and only read them.
    rows: Rows,
    span: ReadRange,
    /// The last request, which the next one replaces.
    head: Head,
    /// Knows the time of the last line.
    clock: TimeReader,
    pub(crate) counts: ReadCounts,
}

impl LineParser {
    /// A reader of lines in this format that has read none yet.
    pub(crate) fn new(format: Format, rows: Rows, span: ReadRange) -> Self {
        let (head, clock, counts) = Default::default();
        Self { format, rows, span, head, clock, counts }
    }

    /// The asks of the lines of a batch. Lines outside of the time and lines that are not understood have none.
    pub(crate) fn batch(&mut self, number: u64, batch: &LineBatch) -> ParsedBatch {
        let lines = batch.bytes.len() / 128;
        let (requests, asks, keys) = (Vec::with_capacity(lines), Vec::with_capacity(lines), Vec::new());
        let mut taken = ParsedBatch { requests, asks, keys };
        // The whole text is checked at once, and line by line only if that fails.
        let whole = std::str::from_utf8(&batch.bytes);
        for (line, place) in batch.lines() {
            self.counts.read += 1;
            let (bytes, is_long) = (&batch.bytes[place.clone()], place.len() > LONGEST);
            let mended: Bytes;
            let (text, bytes) = match whole.map(|whole| &whole[place]).or_else(|_| std::str::from_utf8(bytes))
            {
                Ok(text) => (text, &batch.bytes),
                Err(_) => {
                    mended = String::from_utf8_lossy(bytes).into_owned().into();
                    (std::str::from_utf8(&mended).unwrap_or_default(), &mended)
                }
            };
            if let Err(reason) = if is_long { Err(TOO_LONG) } else { self.asked(text, bytes, &mut taken) } {
                self.not_understood((number, batch.log, line), reason, text);
            }
        }
        taken
    }

    /// Counts a line that is not understood, and keeps it if it is among the first ten of this reader.
    fn not_understood(&mut self, (batch, log, line): (u64, usize, u64), reason: &'static str, text: &str) {
        self.counts.not_understood += 1;
        if self.counts.shown.len() < SHOWN {
            // A log holds what clients write: none of it may reach a terminal unescaped.
            let begins = || text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
            let begins = (!self.span.hides_lines).then(begins);
            self.counts.shown.push(Puzzle { batch, log, line, reason, begins });
        }
    }

    /// Takes the asks of a line, which stands in these bytes.
    ///
    /// # Errors
    /// The reason for which the line is not understood; nothing was taken then.
    fn asked(&mut self, line: &str, bytes: &Bytes, taken: &mut ParsedBatch) -> Result<(), &'static str> {
        let mut entry = LogEntry::default();
        self.format.fill(&mut entry, line, &mut self.clock)?;
        let (moment, status, peer) = (entry.arrival()?, entry.status, entry.peer);
        let agent = mem::take(&mut entry.agent);
        self.counts.is_as_logged |= !entry.knows_arrival();
        let ReadRange { since_us, until_us, latest_us, .. } = self.span;
        if latest_us.is_some_and(|latest| moment.us > latest) {
            return Err("its time has not come yet");
        }
        let request = self.head.of(&mut entry, bytes)?;
        if since_us.is_some_and(|since| moment.us < since) || until_us.is_some_and(|until| moment.us >= until)
        {
            self.counts.outside += 1;
            return Ok(());
        }
        let begin = (taken.asks.len(), taken.keys.len());
        let (rows, left_out, marks) = (&self.rows, &mut self.counts.left_out, &mut self.counts.marks);
        let said = || request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let agent = if agent.is_empty() { said().unwrap_or_default() } else { &*agent };
        let mut visit = RequestMarks {
            client: peer,
            agent: marks.agents.bucket(agent),
            path: marks.paths.bucket(request.uri().path()),
        };
        let mut grouped: SmallVec<[(RowGroups, u64); 4]> = SmallVec::new();
        let is_behind_proxies = self.span.is_behind_proxies;
        let mut enforced = Enforced::default();
        let meeting = rows.limits.meet(request, |Met { limit, asks: met, .. }| {
            let row = met.as_ref().ok().and_then(|met| rows.row(limit, met.limiter));
            if let (Ok(MetAsk { is_enforced: true, .. }), Some(row)) = (&met, row) {
                enforced.add(row);
            }
            if !rows.is_replayed(limit) {
                return;
            }
            match met {
                // The service has seen more of the request than the log has kept.
                Ok(met) if *met.key == Key::shared() => left_out.add(limit, NO_KEY, 1),
                Ok(MetAsk { limiter, key, cost, is_enforced, .. }) => {
                    if let Some((row, place)) = row.and_then(|row| Some((row, row.row?))) {
                        if is_behind_proxies && key.kind() == KeyKind::Address {
                            let shown = key.in_clear();
                            visit.client = shown.and_then(|shown| shown.parse().ok()).or(visit.client);
                        }
                        taken.push(place, (key, rows.quotas(row, limiter)), cost, is_enforced);
                        grouped.extend(row.groups.map(|groups| (groups, cost)));
                    }
                }
                Err(NoAsk::NoKey(missing)) => left_out.add(limit, missing.reason(), 1),
                Err(_) => left_out.add(limit, "the limit refuses such requests whatever they have spent", 1),
            }
        });
        match meeting {
            Meeting::Exempt => self.counts.exempt += 1,
            Meeting::Blocked => self.counts.blocked += 1,
            Meeting::Limits => {}
            _ => left_out.add(0, "what the limits ask for is not known at once", 1),
        }
        for (RowGroups { network, session }, cost) in grouped {
            let Some(client) = visit.client else { break };
            let by_network = Key::from(network_of(client).to_string()).of_kind(KeyKind::Address);
            let by_session = Key::from((client, agent)).of_kind(KeyKind::Address);
            taken.push(network, (&by_network, OWN_OF_ROW), cost, false);
            taken.push(session, (&by_session, OWN_OF_ROW), cost, false);
        }
        if let Some(mistake) = enforced.mistake() {
            let asks = taken.asks.drain(begin.0..);
            asks.for_each(|ask| left_out.add(rows.limit_of[ask.row as usize], mistake, 1));
            taken.keys.truncate(begin.1);
        }
        let RequestMarks { client, agent, path } = visit;
        let (at_us, is_whole) = (moment.us, moment.is_whole);
        let came = Came { at_us, is_whole, status, client: NO_CLIENT, agent, path };
        taken.requests.push(AskedRequest { came, client, asks: taken.asks.len() - begin.0 });
        Ok(())
    }
}

const NO_KEY: &str = "the log does not say the key";
const TOO_LONG: &str = "it is longer than 256 KiB";
