//! The findings of a replay: [`ReplayOutcome`].
//!
//! An outcome is data. The table, the JSON, the page and the picture have files of their own, which read the outcome and compute nothing
//! that it does not have.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sluicegate_core::Policy;

use crate::judge::{LogEvaluation, RuleFigures};
use crate::read::{Format, Marks, time};
use crate::replay::WithinSecond;

/// The findings of a replay. `Display` is a table for a terminal, [`to_json`](Self::to_json) one object for programs,
/// [`to_html`](Self::to_html) a page.
///
/// ```
/// use sluicegate_replay::{Replay, Share};
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let text = "version: 1\npolicies: { p: { quota: 2/min } }\nrules: [{ name: r, limit: p, key: client }]\n";
/// let rules = RulesFile::parse("rules.yaml", text, &Variables::none())?;
/// let log = "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 17\n".repeat(4) + "garbage\n";
/// let outcome = Replay::new(rules)?.run([("access.log", std::io::Cursor::new(log))])?;
///
/// assert_eq!((outcome.lines.read, outcome.lines.not_understood), (5, 1));
/// assert_eq!((outcome.lines.shown[0].line, outcome.lines.shown[0].begins.as_deref()), (5, Some("garbage")));
/// assert!(outcome.rejects_more_than("49%".parse::<Share>()?));
/// assert!(outcome.to_string().contains("2 of 4 rejected"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayOutcome {
    /// The names of the logs.
    ///
    /// They are in the order in which they were given, which is not the order of their times.
    pub logs: Vec<String>,
    /// The formats of their lines, each once; none if there was no line.
    pub formats: Vec<Format>,
    /// The way in which whole seconds were taken.
    pub within_second: WithinSecond,
    /// Whether the log has whole seconds.
    ///
    /// One line with a whole second is enough. Where it is false, both ways to take seconds come to the same.
    pub has_whole_seconds: bool,
    /// Counts of lines by their fate.
    pub lines: LineCounts,
    /// Requests that a rule was not asked about, with the reasons.
    ///
    /// They are sorted by rule and reason.
    pub left_out: Vec<LeftOut>,
    /// The first and the last moment that was replayed, in microseconds since the Unix epoch.
    ///
    /// `None` if no request was replayed. Requests that are spread over their second count at the moment that they were given.
    pub span: Option<(u64, u64)>,
    /// Keys that were forgotten before they were at rest, because the store that replays had no room for more.
    ///
    /// Above 0, the rejections of some policy are too low, because those keys started afresh. Keys are forgotten only by policies that set
    /// how many keys they have room for, as in the service, and by policies that need a store to be decided.
    pub forgotten: u64,
    /// Whether any line was taken at its logged time.
    pub(crate) is_as_logged: bool,
    /// Whether any line names a client behind the proxies of the rules.
    pub(crate) forwarded: Forwarded,
    /// Parts of the log that are unusual for it, in the order of their beginnings.
    ///
    /// They are found whatever the rules are. Suggestions are not learned from them.
    pub unusual: Vec<Unusual>,
    /// The figures of each rule under each of its policies.
    ///
    /// They are in the order of the file. A rule that chooses its policy by tier has a row for each, and so has each group of keys, if
    /// [those](crate::Replay::groups) are counted.
    pub rules: Vec<RuleFigures>,
}

/// Counts of lines by their fate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LineCounts {
    /// All lines.
    ///
    /// The lines of all logs together, empty ones too.
    pub read: u64,
    /// Lines of no request: empty ones, comments, and lines that a server writes beside those of requests.
    pub no_request: u64,
    /// Lines that could not be understood.
    pub not_understood: u64,
    /// The first lines that were not understood.
    ///
    /// There are at most ten. All of them are counted in [`not_understood`](Self::not_understood).
    #[serde(rename = "first_not_understood")]
    pub shown: Vec<NotUnderstood>,
    /// Lines that came after more than ten seconds and more than 32,768 later requests: they count as of the earliest moment that
    /// was still open.
    pub late: u64,
    /// Lines before or after the time that was asked for.
    pub outside: u64,
    /// Requests that no limit is for.
    pub exempt: u64,
    /// Requests that are refused before all limits.
    pub blocked: u64,
}

/// A line that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotUnderstood {
    /// The name of its log.
    pub log: String,
    /// Its number in its log, counted from 1.
    pub line: u64,
    /// The reason why it was not understood.
    ///
    /// The most frequent reasons are:
    ///
    /// | reason | meaning |
    /// |---|---|
    /// | `it does not have the fields of the format` | a text of the format is missing |
    /// | `it has more than the fields of the format` | there is text after the last field |
    /// | `its time cannot be read`, `it has no time` | no moment of 1970 or later that exists |
    /// | `its time has not come yet` | it is above [`latest_us`](crate::Replay::latest_us) |
    /// | `the request is not METHOD URL HTTP/VERSION` | a scan, or a request of another protocol |
    /// | `its method is none of HTTP`, `its URL is none` | no server would have accepted it |
    /// | `the time that it took is not one of 0 s to 30 days` | a clock was set meanwhile |
    /// | `it is longer than 256 KiB` | its end was not kept |
    pub reason: &'static str,
    /// The beginning of the line; `None` where keys are hidden, because a line may hold one.
    ///
    /// It has up to 160 characters, in which control characters and unprintable characters are escaped: a log holds what clients write.
    pub begins: Option<String>,
}

/// Requests that a rule could not be asked about.
///
/// They count in no other figure of that rule; other rules are asked about them as usual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// The name of the rule.
    pub rule: String,
    /// The number of requests.
    pub count: u64,
    /// The reason.
    pub reason: String,
}

impl ReplayOutcome {
    /// Takes the names of the logs, their format and the way of whole seconds; counts of lines, of requests that came too late, and names
    /// of rules by the places of limits; and everything that was decided.
    ///
    /// The decider searches for suggestions here. Lines that were left out are sorted by rule and reason, so that their order does not
    /// depend on the number of threads that have read.
    pub(crate) fn new(
        (logs, formats, within_second): (Vec<String>, Vec<Format>, WithinSecond),
        (counts, late, names): (ReadCounts, u64, &[String]),
        decider: LogEvaluation,
    ) -> Self {
        let left_out = counts.left_out.all().map(|(limit, reason, count)| LeftOut {
            rule: names.get(limit).cloned().unwrap_or_default(),
            count,
            reason: reason.to_owned(),
        });
        let mut left_out: Vec<LeftOut> = left_out.collect();
        let shown = counts.puzzles.into_iter().map(|Puzzle { log, line, reason, begins, .. }| {
            NotUnderstood { log: logs.get(log).cloned().unwrap_or_default(), line, reason, begins }
        });
        let shown = shown.collect();
        left_out.sort_unstable_by(|a, b| (&a.rule, &a.reason).cmp(&(&b.rule, &b.reason)));
        let (span, forgotten) = (decider.span, decider.forgotten());
        let (rules, unusual) = decider.finish(&counts.marks);
        Self {
            logs,
            formats,
            within_second,
            has_whole_seconds: rules.iter().any(|rule| rule.rejected_otherwise.is_some()),
            lines: LineCounts { shown, late, ..counts.lines },
            left_out,
            span,
            forgotten,
            is_as_logged: counts.is_as_logged,
            forwarded: counts.forwarded,
            unusual,
            rules,
        }
    }

    /// Whether a rule rejects more than this share of its requests or keys.
    ///
    /// A rule that was asked nothing rejects nothing. It makes a gate for a pipeline: the exit status can say that a change of the rules,
    /// or a new log, would have cost customers their requests.
    pub fn rejects_more_than(&self, share: Share) -> bool {
        self.rules.iter().filter(|rule| rule.group.is_none()).any(|rule| match share.is_of_keys() {
            true => !share.covers(rule.rejected_keys, rule.keys),
            false => !share.covers(rule.rejected, rule.asked),
        })
    }
}

// Counts of lines by their fate: [`ReadCounts`].
//
// A line counts once as read, and once more if it is outside, exempt, blocked or not understood.
//
// Each parsing thread has its own counts, which are summed when all threads have ended, so no line is counted under a lock.

/// The most lines that are shown among those that were not understood.
pub(crate) const SHOWN: usize = 10;

/// A line that was not understood.
///
/// The positions of such lines are kept, so that the first ten of the log are shown, and not the first ten of some thread.
#[derive(Clone, Debug)]
pub(crate) struct Puzzle {
    /// The number of batches that were read before.
    pub(crate) batch: u64,
    /// The place of the log among all.
    pub(crate) log: usize,
    /// The number of the line in its log.
    pub(crate) line: u64,
    pub(crate) reason: &'static str,
    /// The beginning of the line, unless lines are hidden.
    pub(crate) begins: Option<String>,
}

/// Whether lines name clients behind the proxies of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Forwarded {
    /// No rule asks for clients behind proxies.
    #[default]
    NotAsked,
    /// All clients are peers.
    Nowhere,
    Somewhere,
}

/// Counts of lines by their fate.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadCounts {
    /// The lines by their fate; those that were not understood are in `puzzles`.
    pub(crate) lines: LineCounts,
    pub(crate) forwarded: Forwarded,
    /// Whether a line was replayed at its logged time, because it does not say how long the request took.
    pub(crate) is_as_logged: bool,
    /// The first lines that were not understood.
    pub(crate) puzzles: Vec<Puzzle>,
    /// The reasons for which each limit was not asked, with counts.
    pub(crate) left_out: LeftOutCounts,
    /// The texts of user agents and paths.
    pub(crate) marks: Marks,
}

impl ReadCounts {
    /// Adds the counts of another thread.
    ///
    /// The shown lines of both are put in the order of the log again, and cut off at [`SHOWN`].
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.lines.read += other.lines.read;
        self.lines.no_request += other.lines.no_request;
        self.lines.outside += other.lines.outside;
        self.lines.exempt += other.lines.exempt;
        self.lines.blocked += other.lines.blocked;
        self.lines.not_understood += other.lines.not_understood;
        self.forwarded = self.forwarded.max(other.forwarded);
        self.is_as_logged |= other.is_as_logged;
        self.puzzles.extend(other.puzzles);
        self.puzzles.sort_unstable_by_key(|puzzle| (puzzle.batch, puzzle.line));
        self.puzzles.truncate(SHOWN);
        self.marks = self.marks.and(other.marks);
        for (limit, reasons) in other.left_out.0.into_iter().enumerate() {
            reasons.iter().for_each(|(reason, count)| self.left_out.add(limit, reason, *count));
        }
        self
    }
}

/// The reasons for which limits were not asked, with counts. Each limit has few reasons, however many requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOutCounts(Vec<Vec<(String, u64)>>);

impl LeftOutCounts {
    /// Counts requests of the limit at this index, by a reason. Reasons are few, so they are searched linearly.
    pub(crate) fn add(&mut self, limit: usize, reason: &str, count: u64) {
        if self.0.len() <= limit {
            self.0.resize(limit + 1, Vec::new());
        }
        match self.0[limit].iter_mut().find(|(known, _)| known == reason) {
            Some((_, known)) => *known += count,
            None => self.0[limit].push((reason.to_owned(), count)),
        }
    }

    /// The place of the limit, the reason, and the count.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        self.0.iter().enumerate().flat_map(|(limit, reasons)| {
            reasons.iter().map(move |(reason, count)| (limit, &**reason, *count))
        })
    }
}

// Groups of keys: [`KeyGroup`].

/// A group of clients that is counted as one key, in addition to the keys of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KeyGroup {
    /// The /24 of the client's address, or the /48 of IPv6.
    Network,
    /// The client's address with its user agent.
    Session,
}

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network",
            Self::Session => "session",
        })
    }
}

// Traffic that is unusual for the log: [`Unusual`].

/// An unusual part of a log, with its span.
///
/// It is compared with the rest of the log: the median over its time windows, and the median deviation from it. An attack that
/// fills more than half of the log counts as usual, except for [`Even`](UnusualKind::Even) clients.
///
/// It is a remark, not a verdict: the opening of a sale is as unusual as an attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unusual {
    /// The kind of what is unusual.
    pub kind: UnusualKind,
    /// The finding in words and numbers, with the usual range.
    ///
    /// If [keys are hidden](crate::Replay::hide_keys), it names no network, agent or path.
    pub what: String,
    /// The beginning of the minute in which it began, in microseconds since the Unix epoch.
    #[serde(rename = "from", serialize_with = "moment")]
    pub from_us: u64,
    /// The end of the minute in which it ended.
    #[serde(rename = "to", serialize_with = "moment")]
    pub to_us: u64,
    /// The requests that make it.
    pub requests: u64,
    /// The clients that make it, by their addresses.
    pub keys: u64,
}

/// Writes a moment in microseconds since the Unix epoch in RFC 3339.
pub(crate) fn moment<S: Serializer>(at_us: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time::rfc3339(*at_us))
}

/// The kind of what is unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnusualKind {
    /// Many more clients come than usual, and they are new.
    NewKeys,
    /// Clients of one network, a /24 or a /48, make much more of the traffic than usual.
    Network,
    /// Clients with one user agent make much more of the traffic than usual.
    Agent,
    /// Clients that ask for one path make much more of the traffic than usual.
    Path,
    /// Many clients ask minute after minute at one rate, and make most of the traffic.
    Even,
}

// A suggested limit: [`Suggestion`].

/// The lowest limit above which no limit rejects more than a share, with its policy alone.
///
/// # How to read it
/// This limit and every higher one would have rejected at most the share of the requests. That is a fact about the log,
/// not a forecast: refused clients come again, and traffic grows. Start with it in shadow mode.
///
/// If costs differ, a lower limit may also reject no more than the share: it refuses a large request, and so has room for several small
/// ones. It is not suggested, because a limit between the two rejects more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suggestion {
    /// The policy with that limit; periods stay, and so does the relation of bursts and of several quotas to the limit.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// The requested share.
    pub share: Share,
    /// Requests that it rejects; an estimate if the log was too large to be kept.
    pub rejected: u64,
    /// Keys with at least one rejected request.
    pub rejected_keys: u64,
    /// The largest distance from `rejected` to the true number in nineteen of twenty cases; 0 if it is exact.
    ///
    /// It is 1.96 standard deviations of the estimate, and at least three times what each key of a sample stands for.
    pub uncertainty: u64,
    /// The distance to the next lower limit that was tried: 1 up to a limit of 512, and less than a hundredth above that.
    ///
    /// Between the two limits where the share was crossed, every limit was tried.
    pub step: u64,
    /// Requests that it rejects together with the other suggestions.
    ///
    /// A rule that refuses a request keeps it from spending elsewhere, so this is often less than [`rejected`](Self::rejected). `None` if
    /// the log was too large to be kept as a whole.
    pub together: Option<u64>,
    /// The part of the log that is unusual or left out by hand, which it was not learned from; `None` if there is none.
    pub unusual: Option<UnusualSide>,
}

/// The requests that a suggestion was not learned from, because they are [unusual](crate::Unusual) or left out by hand.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnusualSide {
    /// All these requests.
    pub asked: Counted,
    /// Requests that the suggestion rejects.
    pub rejected: Counted,
    /// The least share of them that it has to reject, if requested.
    pub share: Option<Share>,
    /// The limit that is learned from the unusual requests too, but not from those that are left out by hand; `None` where it was not asked for.
    ///
    /// A limit that is learned from an attack admits the attack. It is shown for comparison, and because unusual traffic is not always an
    /// attack.
    pub with: Option<LimitWithUnusual>,
}

/// The limit that a log with an unusual part suggests, if that part is ordinary after all.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitWithUnusual {
    /// The policy with that limit.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// Requests that it rejects, ordinary and unusual ones.
    pub rejected: u64,
}

// Limits with their rejections of ordinary and of unusual requests: [`Frontier`].

/// Limits of a row, from the lowest to the highest, with the ordinary and the unusual requests that each rejects.
///
/// All requests are replayed under each limit, ordinary and unusual ones together: if both share a key, as they may by
/// [network](crate::KeyGroup::Network), the unusual ones take the room of the others, and the counts show that.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Frontier {
    /// All ordinary requests and keys.
    pub ordinary: Counted,
    /// All other requests: those found to be unusual, and those left out by hand.
    pub unusual: Counted,
    /// Limits, from the lowest to the highest. The highest rejects nothing.
    pub points: Vec<FrontierPoint>,
    /// The limits at which a further change begins to cost more than it gains; two or three, if the limits differ at all.
    pub knees: Vec<FrontierPoint>,
}

impl Frontier {
    /// Adds a limit in its place, unless it is there.
    pub(crate) fn add(&mut self, point: Option<FrontierPoint>) {
        let Some(point) = point else { return };
        if let Err(place) = self.points.binary_search_by_key(&point.limit, |known| known.limit) {
            self.points.insert(place, point);
        }
    }
}

/// Requests and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counted {
    /// Requests.
    pub requests: u64,
    /// Keys with at least one of these requests.
    pub keys: u64,
}

/// A limit, and its rejections on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontierPoint {
    /// The limit of the first quota.
    pub limit: u64,
    /// The ordinary requests that it rejects, and their keys.
    pub ordinary: Counted,
    /// The unusual requests that it rejects, and their keys.
    pub unusual: Counted,
}

/// Writes an object whose names say what is rejected.
impl Serialize for FrontierPoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { limit, ordinary, unusual } = self;
        serializer.collect_map([
            ("limit", limit),
            ("ordinary_rejected", &ordinary.requests),
            ("ordinary_keys", &ordinary.keys),
            ("unusual_rejected", &unusual.requests),
            ("unusual_keys", &unusual.keys),
        ])
    }
}

impl Counted {
    /// Whether it is at most this share of `all`, by keys or by requests as the share says.
    pub(crate) fn is_within(self, share: Share, all: Self) -> bool {
        match share.is_of_keys() {
            true => share.covers(self.keys, all.keys),
            false => share.covers(self.requests, all.requests),
        }
    }

    /// Whether it is at least this share of `all`.
    pub(crate) fn reaches(self, share: Share, all: Self) -> bool {
        match share.is_of_keys() {
            true => share.is_reached(self.keys, all.keys),
            false => share.is_reached(self.requests, all.requests),
        }
    }

    /// Its requests as a part of `all`, in billionths.
    pub(crate) fn part(self, all: Self) -> u64 {
        let part = u128::from(self.requests) * 1_000_000_000 / u128::from(all.requests.max(1));
        u64::try_from(part).unwrap_or(1_000_000_000)
    }
}

// A share of requests or keys: [`Share`].

/// A share of requests, written `0.1%` or `0.001`, or of keys, written `1%/keys`.
///
/// ```
/// use sluicegate_replay::Share;
///
/// let share: Share = "0.1%".parse()?;
/// assert!(share.covers(1, 1_000) && !share.covers(2, 1_000));
/// assert!("1%/keys".parse::<Share>()?.is_of_keys());
/// # Ok::<(), String>(())
/// ```
///
/// It is kept in billionths, and compared with counts by whole numbers: 0.1 % of a thousand requests is one, and never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The share in parts of a billion.
    billionths: u64,
    of_keys: bool,
}

const WHOLE: u64 = 1_000_000_000;

impl Share {
    /// Whether it is a share of keys, not of requests.
    pub fn is_of_keys(self) -> bool {
        self.of_keys
    }

    /// Whether `part` of `all` is at most this share.
    ///
    /// No number is rounded: products of both sides are compared.
    pub fn covers(self, part: u64, all: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) <= u128::from(self.billionths) * u128::from(all)
    }
}

impl Share {
    /// Whether `part` of `all` is at least this share.
    fn is_reached(self, part: u64, all: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) >= u128::from(self.billionths) * u128::from(all)
    }
}

impl FromStr for Share {
    type Err = String;

    /// # Errors
    /// When it is any other text, or more than the whole.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a share: write 0.1%, 0.001, or 1%/keys");
        let (number, of_keys) = text.strip_suffix("/keys").map_or((text, false), |number| (number, true));
        let (number, scale) = number.strip_suffix('%').map_or((number, 9), |number| (number.trim_end(), 7));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
            return Err(wrong());
        }
        if fraction.len() > scale {
            return Err(format!(
                "{text:?} is finer than a share can be: use at most nine digits behind the point"
            ));
        }
        let digits = format!("{whole}{fraction:0<scale$}");
        let billionths = digits.parse().ok().filter(|billionths| *billionths <= WHOLE);
        Ok(Self {
            billionths: billionths.ok_or_else(|| format!("{text:?} is more than the whole"))?,
            of_keys,
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.billionths / 10_000_000, self.billionths % 10_000_000);
        write!(f, "{whole}")?;
        if fraction > 0 {
            write!(f, ".{}", format!("{fraction:07}").trim_end_matches('0'))?;
        }
        f.write_str(if self.of_keys { "%/keys" } else { "%" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_prints_as_it_reads() {
        for (text, printed) in [
            ("0.1%", "0.1%"),
            ("0.001", "0.1%"),
            ("100%", "100%"),
            ("1", "100%"),
            (".5%/keys", "0.5%/keys"),
            ("0", "0%"),
        ] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), printed, "{text}");
        }
        for text in
            ["", "%", "101%", "-1%", "1e-3", "1%/users", "1.1", "0.00000000001", "99999999999999999999"]
        {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
