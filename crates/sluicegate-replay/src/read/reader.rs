//! From lines to asks: finds the asks of each line, before any ask is decided.
//!
//! The limits of the service find the asks of a line, with their own conditions, tiers and keys. This does not depend on the units that other
//! lines have spent, so several threads do it; decisions do depend on them, so one thread makes them.
//!
//! # How lines are counted
//! | a line | counts as |
//! |---|---|
//! | that is empty, a comment, or written beside the line of a request | of no request |
//! | that the format cannot read, or whose method or URL HTTP does not have | not understood |
//! | outside of the time that was asked for | outside |
//! | that the limits exempt or block | exempt, blocked |
//! | whose limit finds no key, or that asks more than a service would decide | left out, with the reason |
//! | of any other kind | a request with its asks, or with none |
//!
//! A request that is left out of one limit may still ask another one.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request, Uri};
use ipnet::IpNet;
use jiff::tz::TimeZone;
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;
use sluicegate_tower::key::PeerAddr;
use sluicegate_tower::limits::{Meeting, Met, MetAsk, NoAsk};
use smallvec::SmallVec;

use crate::outcome::{Forwarded, Puzzle, ReadCounts, SHOWN};
use crate::read::format::time::TimeReader;
use crate::read::format::{Format, LogEntry, NO_REQUEST, Wrapping};
use crate::read::lines::{LONGEST, LineBatch};
use crate::read::{Enforced, OWN_OF_ROW, RowGroups, Rows};

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
    /// The zone of times that name none.
    pub(crate) zone: Option<TimeZone>,
}

impl ReadRange {
    fn clock(&self) -> TimeReader {
        TimeReader::in_zone(self.zone.clone().unwrap_or(TimeZone::UTC))
    }
}

/// The format of a log, and the text around its lines.
#[derive(Clone, Debug)]
pub(crate) struct LogFormat {
    pub(crate) wrapping: Wrapping,
    pub(crate) format: Format,
}

impl LogFormat {
    /// The moment when the request of a line came, in microseconds; `None` for a line that is not understood.
    pub(crate) fn when(&self, line: &[u8], span: &ReadRange) -> Option<u64> {
        let line = self.wrapping.unwrap(std::str::from_utf8(line).ok()?)?;
        let moment = self.format.parse(&line, &mut span.clock()).ok()?.arrival().ok()?;
        Some(moment.us).filter(|us| span.latest_us.is_none_or(|latest| *us <= latest))
    }
}

/// The number of characters that are shown of each line that was not understood.
const SHOWN_CHARS: usize = 160;

/// Reads lines, those of each log in its format.
pub(crate) struct LineParser {
    /// The format of each log; a log without lines has none.
    formats: Arc<[Option<LogFormat>]>,
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
    /// A reader of lines in these formats that has read none yet.
    pub(crate) fn new(formats: Arc<[Option<LogFormat>]>, rows: Rows, span: ReadRange) -> Self {
        let (head, counts) = Default::default();
        Self { formats, rows, clock: span.clock(), span, head, counts }
    }

    /// The asks of the lines of a batch. Lines outside of the time and lines that are not understood have none.
    pub(crate) fn batch(&mut self, number: u64, batch: &LineBatch) -> ParsedBatch {
        let lines = batch.bytes.len() / 128;
        let (requests, asks, keys) = (Vec::with_capacity(lines), Vec::with_capacity(lines), Vec::new());
        let mut taken = ParsedBatch { requests, asks, keys };
        // The whole text is checked at once, and line by line only if that fails.
        let whole = std::str::from_utf8(&batch.bytes);
        let formats = Arc::clone(&self.formats);
        let Some(LogFormat { wrapping, format }) = &formats[batch.log] else { return taken };
        for (line, place) in batch.lines() {
            self.counts.lines.read += 1;
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
            let result = match wrapping {
                _ if is_long => Err(TOO_LONG),
                Wrapping::None => self.asked(format, text, bytes, &mut taken),
                _ if text.trim_ascii_start().is_empty() => Err(NO_REQUEST),
                wrapping => match wrapping.unwrap(text) {
                    None => Err("it is not wrapped as other lines are"),
                    Some(Cow::Borrowed(inner)) => self.asked(format, inner, bytes, &mut taken),
                    Some(Cow::Owned(inner)) => {
                        let bytes = Bytes::from(inner);
                        self.asked(
                            format,
                            std::str::from_utf8(&bytes).unwrap_or_default(),
                            &bytes,
                            &mut taken,
                        )
                    }
                },
            };
            match result {
                Ok(()) => {}
                Err(NO_REQUEST) => self.counts.lines.no_request += 1,
                Err(reason) => self.not_understood((number, batch.log, line), reason, text),
            }
        }
        taken
    }

    /// Counts a line that is not understood, and keeps it if it is among the first ten of this reader.
    fn not_understood(&mut self, (batch, log, line): (u64, usize, u64), reason: &'static str, text: &str) {
        self.counts.lines.not_understood += 1;
        if self.counts.puzzles.len() < SHOWN {
            // A log holds what clients write: none of it may reach a terminal unescaped.
            let begins = || text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
            let begins = (!self.span.hides_lines).then(begins);
            self.counts.puzzles.push(Puzzle { batch, log, line, reason, begins });
        }
    }

    /// Takes the asks of a line, which stands in these bytes.
    ///
    /// # Errors
    /// The reason for which the line is not understood; nothing was taken then.
    fn asked(
        &mut self,
        format: &Format,
        line: &str,
        bytes: &Bytes,
        taken: &mut ParsedBatch,
    ) -> Result<(), &'static str> {
        let mut entry = LogEntry::default();
        format.fill(&mut entry, line, &mut self.clock)?;
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
            self.counts.lines.outside += 1;
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
        let (mut enforced, mut forwarded) = (Enforced::default(), self.counts.forwarded);
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
                            let is_peer = visit.client == peer;
                            forwarded = forwarded.max(if is_peer {
                                Forwarded::Nowhere
                            } else {
                                Forwarded::Somewhere
                            });
                        }
                        taken.push(place, (key, rows.quotas(row, limiter)), cost, is_enforced);
                        grouped.extend(row.groups.map(|groups| (groups, cost)));
                    }
                }
                Err(NoAsk::NoKey(missing)) if peer.is_none() && missing.is_mistake() => {
                    left_out.add(limit, NO_ADDRESS, 1);
                }
                Err(NoAsk::NoKey(missing)) => left_out.add(limit, missing.reason(), 1),
                Err(_) => left_out.add(limit, "the limit refuses such requests whatever they have spent", 1),
            }
        });
        self.counts.forwarded = forwarded;
        match meeting {
            Meeting::Exempt => self.counts.lines.exempt += 1,
            Meeting::Blocked => self.counts.lines.blocked += 1,
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

const NO_ADDRESS: &str = "the log says no address of the client, but a name, a Unix socket or nothing";
const NO_KEY: &str = "the log does not say the key";
const TOO_LONG: &str = "it is longer than 256 KiB";

// A request as the service would have seen it, made from a line.
//
// Nothing is copied: method, URL and header fields point into the batch that the line was read in, and the map of header fields and the
// extensions are reused after they are emptied. A new request for each line would take several allocations.

/// The head of a request, made anew for each line in the same place.
#[derive(Debug, Default)]
pub(super) struct Head(Request<()>);

impl Head {
    /// The request of a line, or the reason why no server would have taken it. The line stands in these bytes, which the request shares,
    /// and its entry is used up.
    ///
    /// # Errors
    /// When HTTP does not have the method or the URL. A header field with bytes that no field may have is left out: a server would have
    /// refused the request, and a log that escapes the bytes in another way says nothing about it.
    pub(super) fn of(
        &mut self,
        entry: &mut LogEntry<'_>,
        bytes: &Bytes,
    ) -> Result<&Request<()>, &'static str> {
        let shared = |text: Cow<'_, str>| match text {
            Cow::Borrowed(text) => bytes.slice_ref(text.as_bytes()),
            Cow::Owned(text) => text.into(),
        };
        *self.0.method_mut() =
            Method::from_bytes(entry.method.as_bytes()).map_err(|_| "its method is none of HTTP")?;
        let target = match &entry.query {
            Some(query) if !entry.target.contains('?') => format!("{}?{query}", entry.target).into(),
            _ => shared(mem::take(&mut entry.target)),
        };
        let target: Bytes = target;
        *self.0.uri_mut() = Uri::from_maybe_shared(target.clone())
            .or_else(|_| Uri::from_maybe_shared(encoded(&target)))
            .map_err(|_| "its URL is none")?;
        let headers = self.0.headers_mut();
        headers.clear();
        for (name, value) in entry.headers.drain(..) {
            if let Ok(value) = HeaderValue::from_maybe_shared(shared(value)) {
                headers.append(name, value);
            }
        }
        let extensions = self.0.extensions_mut();
        match (entry.peer, extensions.get_mut::<PeerAddr>()) {
            (Some(ip), Some(known)) => known.0.set_ip(ip),
            (Some(ip), None) => _ = extensions.insert(PeerAddr(SocketAddr::new(ip, 0))),
            (None, _) => extensions.clear(),
        }
        Ok(&self.0)
    }
}

/// A URL whose bytes that no URL may have are written as `%3C`: servers answer such requests all the same.
fn encoded(target: &[u8]) -> Bytes {
    let mut url = Vec::with_capacity(target.len() + 16);
    for byte in target {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                url.extend(format!("%{byte:02X}").bytes())
            }
            0x21..=0x7e => url.push(*byte),
            _ => url.extend(format!("%{byte:02X}").bytes()),
        }
    }
    url.into()
}

// Small marks of a request, by which unusual traffic is found: [`RequestMarks`], and the texts that they stand for: [`Marks`].
//
// A user agent and a path are each one of 65,535 buckets, by a hash: so a log of any number of paths takes the same memory. Two texts
// may share a bucket. The text that a bucket is shown by is the one that came most often in it, if one makes more than half of it.
//
// # Source
// The vote for a text is that of Boyer and Moore, "MJRTY: A fast majority vote algorithm" (1991).

/// The bucket of a request that has no such text.
pub(crate) const NO_TEXT: u16 = 0;

/// The number of a request whose client is not known.
pub(crate) const NO_CLIENT: u32 = u32::MAX;

/// The most characters that are kept of a text.
const LONGEST_TEXT: usize = 120;

/// The marks of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestMarks {
    /// The address of its client, or of its peer where no rule says the client.
    pub(crate) client: Option<IpAddr>,
    /// The bucket of its user agent.
    pub(crate) agent: u16,
    /// The bucket of its path, without the query.
    pub(crate) path: u16,
}

/// The network of an address by which clients are grouped: its /24, or its /48 of IPv6.
pub(crate) fn network_of(address: IpAddr) -> IpNet {
    let bits = if address.is_ipv4() { 24 } else { 48 };
    IpNet::new(address, bits).map_or_else(|_| address.into(), |network| network.trunc())
}

/// The texts of user agents and paths, by their buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) agents: Texts,
    pub(crate) paths: Texts,
}

impl Marks {
    /// Adds the texts that another thread has met.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { agents: self.agents.and(other.agents), paths: self.paths.and(other.paths) }
    }
}

/// The texts of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(Vec<Option<Box<Candidate>>>);

/// The text that is ahead in its bucket.
#[derive(Clone, Debug)]
struct Candidate {
    hash: u64,
    votes: u32,
    text: String,
}

impl Texts {
    /// The bucket of a text, for which the text votes.
    pub(crate) fn bucket(&mut self, text: &str) -> u16 {
        if text.is_empty() || text == "-" {
            return NO_TEXT;
        }
        let hash = FixedState::default().hash_one(text.as_bytes());
        let bucket = u16::try_from(hash % u64::from(u16::MAX)).unwrap_or(0) + 1;
        let place = usize::from(bucket);
        if self.0.len() <= place {
            self.0.resize(usize::from(u16::MAX) + 1, None);
        }
        match &mut self.0[place] {
            Some(ahead) if ahead.hash == hash => ahead.votes = ahead.votes.saturating_add(1),
            Some(ahead) if ahead.votes > 0 => ahead.votes -= 1,
            slot => {
                let text = text.chars().take(LONGEST_TEXT).flat_map(char::escape_debug).collect();
                *slot = Some(Box::new(Candidate { hash, votes: 1, text }));
            }
        }
        bucket
    }

    /// The text of a bucket, if one was met in it.
    pub(crate) fn text(&self, bucket: u16) -> Option<&str> {
        self.0.get(usize::from(bucket))?.as_ref().map(|ahead| &*ahead.text)
    }

    fn and(mut self, other: Self) -> Self {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), None);
        }
        for (own, other) in self.0.iter_mut().zip(other.0) {
            match (&mut *own, other) {
                (_, None) => {}
                (Some(own), Some(other)) if own.hash == other.hash => {
                    own.votes = own.votes.saturating_add(other.votes);
                }
                (Some(own), Some(other)) if own.votes >= other.votes => own.votes -= other.votes,
                (own, Some(mut other)) => {
                    other.votes -= own.as_ref().map_or(0, |own| own.votes);
                    *own = Some(other);
                }
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_shown_by_the_text_that_most_requests_of_it_have() {
        let (mut one, mut other) = (Texts::default(), Texts::default());
        let login = one.bucket("/login");
        (0..9).for_each(|_| assert_eq!(one.bucket("/login"), login));
        // Another text in the same bucket.
        let mut others = Texts::default();
        let same = (0..).map(|n| format!("/{n}")).find(|text| others.bucket(text) == login).unwrap();
        (0..4).for_each(|_| _ = other.bucket(&same));
        assert_eq!(other.text(login), Some(&*same));
        assert_eq!(other.and(one).text(login), Some("/login"));
        assert_eq!((Texts::default().bucket("-"), Texts::default().bucket("")), (NO_TEXT, NO_TEXT));
    }

    #[test]
    fn texts_of_clients_are_bounded_and_escaped() {
        let mut texts = Texts::default();
        let bucket = texts.bucket(&format!("\u{1b}[31m{}", "x".repeat(10_000)));
        let shown = texts.text(bucket).unwrap();
        assert!(shown.starts_with("\\u{1b}[31m") && shown.len() < 2 * LONGEST_TEXT, "{shown}");
    }
}
