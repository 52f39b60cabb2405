//! A replay, with its settings: [`Replay`].
//!
//! # A run in five steps
//! 1. The limits of the file are listed, one row for each policy of each rule; nothing is spent of them.
//! 2. Logs are opened, and the format of each is guessed from its first thousand lines unless it was set.
//! 3. Threads take lines apart and find out what each asks of the rows.
//! 4. The caller's thread gives keys their numbers, puts requests in order, and decides them second by second.
//! 5. The counts become figures, limits are looked for if that was asked, and all of it becomes an outcome.
//!
//! A run awaits nothing and keeps its thread busy until the logs are over: a service calls it on a thread of its own.

use std::error::Error;
use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::{fmt, io};

use http::HeaderName;
use ipnet::IpNet;
use sluicegate_core::MemoryStore;
use sluicegate_rules::{Rules, RulesFile};
use sluicegate_tower::limits::Limits;

use crate::judge::{LogEvaluation, Order};
use crate::outcome::Share;
use crate::outcome::{Puzzle, ReadCounts, ReplayOutcome};
use crate::read::{
    Batches, Format, Guess, LONGEST, LineBatch, LineParser, LogFormat, ReadRange, Rows, take_apart, time,
};

/// Replays access logs against the limits of a rules file.
///
/// ```
/// use sluicegate_replay::Replay;
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let rules = "
/// version: 1
/// policies: { login: { quota: 2/min } }
/// rules: [{ name: login, only_if: { path: /login }, limit: login, key: client }]
/// ";
/// let log = r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "POST /login HTTP/1.1" 200 17
/// 192.0.2.7 - - [17/May/2015:10:05:04 +0000] "GET / HTTP/1.1" 200 512
/// 192.0.2.7 - - [17/May/2015:10:05:05 +0000] "POST /login HTTP/1.1" 200 17
/// 192.0.2.7 - - [17/May/2015:10:05:06 +0000] "POST /login HTTP/1.1" 200 17
/// "#;
/// let rules = RulesFile::parse("rules.yaml", rules, &Variables::none())?;
/// let outcome = Replay::new(rules)?.run([("access.log", log.as_bytes())])?;
/// assert_eq!((outcome.rules[0].asked, outcome.rules[0].rejected), (3, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It may run several times; each run has stores and a clock of its own, and begins with all keys at rest.
#[must_use = "a replay does nothing until it runs"]
pub struct Replay {
    limits: Limits,
    /// Header fields that most logs have and no rule reads.
    unread: Vec<HeaderName>,
    settings: ReplaySettings,
}

/// The number of lines that are looked at to guess the format.
const GUESSED_FROM: usize = 1_000;

impl Replay {
    /// A replay of these rules. Their waiting rooms are left out: a log does not say which visitors waited, so all requests count as let in.
    ///
    /// # Errors
    /// When a store in memory cannot keep one of their policies.
    pub fn new(rules: RulesFile) -> Result<Self, ReplayError> {
        // Nothing is spent here: each replay has stores of its own.
        let clients_say = [http::header::REFERER, http::header::USER_AGENT];
        let unread = clients_say.into_iter().filter(|name| !rules.may_mention(name.as_str())).collect();
        let mut settings = ReplaySettings::default();
        settings.span.is_behind_proxies = rules.may_mention("clients");
        let store = MemoryStore::builder().table_size(1).build().map_err(ReplayError::limits)?;
        let rules = rules.without_store().without_rooms();
        let limits = Rules::new(&store, rules).map_err(ReplayError::limits)?.limits();
        Ok(Self { limits, unread, settings })
    }

    /// Sets the format of the lines. Default: it is guessed from the first thousand of each log.
    ///
    /// The guess is the [known](Format) format that reads the most of those lines, if it reads more than half of them. Another one has to be
    /// set:
    ///
    /// ```
    /// use sluicegate_replay::Replay;
    /// # use sluicegate_rules::{RulesFile, Variables};
    /// # let text = "version: 1\npolicies: { p: { quota: 2/min } }\nrules: [{ name: r, limit: p, key: header(x-user) }]\n";
    /// # let rules = RulesFile::parse("rules.yaml", text, &Variables::none())?;
    ///
    /// let replay = Replay::new(rules)?.format(r#"$msec $remote_addr "$request" $http_x_user"#.parse()?);
    /// let log = "1431857103.250 192.0.2.7 \"GET / HTTP/2.0\" ada\n".repeat(3);
    /// let outcome = replay.run([("access.log", std::io::Cursor::new(log))])?;
    /// assert_eq!((outcome.rules[0].asked, outcome.rules[0].rejected), (3, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn format(mut self, format: Format) -> Self {
        self.settings.format = Some(format);
        self
    }

    /// Sets the zone of times that name none, such as `Europe/Berlin` or `+02:00`. Default: UTC.
    ///
    /// # Errors
    /// When it is not a zone that the system knows.
    pub fn zone(mut self, zone: &str) -> Result<Self, ReplayError> {
        let known = time::zone(zone).ok_or_else(|| {
            ReplayError::new(format!(
                "{zone:?} is not a zone that this system knows: write Europe/Berlin or +02:00"
            ))
        })?;
        self.settings.span.zone = Some(known);
        Ok(self)
    }

    /// Replays logs most of whose lines are not understood, because they are of something else. Default: such a log is an error.
    pub fn allow_other_lines(mut self) -> Self {
        self.settings.allows_other_lines = true;
        self
    }

    /// Sets how requests of one second are taken where the log has whole seconds. Default: spread over it.
    ///
    /// The outcome has the figures of both ways, so that it shows how much depends on the missing order; this chooses the way that
    /// is shown first, and by which limits are suggested and compared.
    pub fn within_second(mut self, how: WithinSecond) -> Self {
        self.settings.within_second = how;
        self
    }

    /// Leaves out requests before this time: `2015-05-17`, `2015-05-17 10:05`, `2015-05-17T10:05:03+02:00`; in UTC unless it has a zone.
    ///
    /// # Errors
    /// When it is not a time, and when it is not before [`until`](Self::until).
    pub fn since(mut self, time: &str) -> Result<Self, ReplayError> {
        self.settings.span.since_us = Some(moment(time)?);
        self.with_time_between()
    }

    /// Leaves out requests at this time and after it.
    ///
    /// # Errors
    /// When it is not a time, and when it is not after [`since`](Self::since).
    pub fn until(mut self, time: &str) -> Result<Self, ReplayError> {
        self.settings.span.until_us = Some(moment(time)?);
        self.with_time_between()
    }

    /// # Errors
    /// When no moment is at or after the first and before the second.
    fn with_time_between(self) -> Result<Self, ReplayError> {
        match (self.settings.span.since_us, self.settings.span.until_us) {
            (Some(since), Some(until)) if since >= until => Err(ReplayError::new(format!(
                "no time is between since {} and until {}: the first has to be before the second",
                time::rfc3339(since),
                time::rfc3339(until)
            ))),
            _ => Ok(self),
        }
    }

    /// Takes lines with a time after this one, in microseconds since the Unix epoch, as not understood. Default: there is no such time.
    ///
    /// One line whose year is misread would otherwise stretch the span of the log over decades. The command sets it to a day from now.
    pub fn latest_us(mut self, latest_us: u64) -> Self {
        self.settings.span.latest_us = Some(latest_us);
        self
    }

    /// Replays only the rule of this name; may be called several times.
    ///
    /// # Errors
    /// When there is no such rule.
    ///
    /// Other rules are left out altogether: they refuse no request here. To see a rule beside the others, replay all of them and read its
    /// row.
    pub fn only(mut self, rule: &str) -> Result<Self, ReplayError> {
        let names: Vec<String> = self.limits.limiters().map(|(name, _)| name).collect();
        if !names.iter().any(|name| name == rule) {
            return Err(ReplayError::new(format!(
                "there is no rule {rule:?}: the rules are {}",
                names.join(", ")
            )));
        }
        self.settings.only.push(rule.to_owned());
        Ok(self)
    }

    /// Sets the number of keys with the most rejections that are listed. Default: 10.
    pub fn top(mut self, keys: usize) -> Self {
        self.settings.top = keys;
        self
    }

    /// Lists keys, and lines that are not understood, by number instead of showing them.
    ///
    /// Use it for outcomes that are shown to people who may not see addresses and names. Figures are the same; errors show no line either.
    pub fn hide_keys(mut self) -> Self {
        self.settings.span.hides_lines = true;
        self
    }

    /// Sets the number of threads that take lines apart, beside one that reads them and one that decides. Default: 1. The figures are the
    /// same.
    ///
    /// Taking lines apart is about three quarters of the work, and the only part that threads share: more than four gain little. 0 is taken
    /// as 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.threads = threads;
        self
    }

    /// Also counts what the same quotas would have rejected under every algorithm.
    ///
    /// Each row is counted alone, as if no other rule had refused its requests, so that algorithms are compared and not rules. Each
    /// algorithm gets the same limit, period and burst; an algorithm that supports no burst gets the limit without it, and says so
    /// ([`Compared::drops_burst`](crate::Compared::drops_burst)).
    pub fn compare(mut self) -> Self {
        self.settings.compares = true;
        self
    }

    /// Also searches the lowest limits above which none rejects more than this share.
    ///
    /// Periods stay, and so do the relations of bursts and of further quotas to the first limit. It keeps up to 256 MiB of asks;
    /// if a log is larger, the heaviest keys are kept whole and the others are sampled, and
    /// [`Suggestion::uncertainty`](crate::Suggestion::uncertainty) says how far the answer may be off.
    pub fn suggest(mut self, share: Share) -> Self {
        self.settings.suggests = Some(share);
        self
    }

    /// Also asks suggestions to reject at least this share of unusual requests, or of their keys.
    ///
    /// Then the highest limit is suggested that does so and rejects at most the other share of the ordinary ones; if there is none,
    /// [`no_suggestion`](crate::RuleFigures::no_suggestion) says so, and the [frontier](crate::Frontier) shows what there is.
    pub fn reject_unusual(mut self, share: Share) -> Self {
        self.settings.least = Some(share);
        self
    }

    /// Learns no suggestion from a span, written `2015-05-17T10:05..2015-05-17T11:00`; may be called several times.
    ///
    /// Its requests are decided and counted as all others. They count as unusual where a limit is looked for.
    ///
    /// # Errors
    /// When it is not two times, or the first is not before the second.
    pub fn without(mut self, span: &str) -> Result<Self, ReplayError> {
        let (from, to) = span.split_once("..").ok_or_else(|| {
            ReplayError::new(format!("{span:?} is not a span: write 2015-05-17T10:05..2015-05-17T11:00"))
        })?;
        let (from_us, to_us) = (moment(from)?, moment(to)?);
        if from_us >= to_us {
            return Err(ReplayError::new(format!(
                "no time is in the span {span:?}: {from} has to be before {to}"
            )));
        }
        self.settings.without.push((from_us, to_us));
        Ok(self)
    }

    /// Learns no suggestion from clients of a network, written `198.51.100.0/24`, or from an address; may be called several times.
    ///
    /// Its requests are decided and counted as all others. They count as unusual where a limit is looked for.
    ///
    /// # Errors
    /// When it is not a network.
    pub fn without_network(mut self, network: &str) -> Result<Self, ReplayError> {
        let parsed = network.parse().or_else(|_| network.parse::<IpAddr>().map(IpNet::from));
        self.settings.without_networks.push(parsed.map_err(|_| {
            ReplayError::new(format!("{network:?} is not a network: write 198.51.100.0/24 or 2001:db8::/48"))
        })?);
        Ok(self)
    }

    /// Learns suggestions only from requests that are not unusual. Otherwise an outcome with an unusual part also has the limit that the whole
    /// log suggests.
    pub fn humans(mut self) -> Self {
        self.settings.is_rest_only = true;
        self
    }

    /// Also counts each rule by groups of its clients: by network, and by session.
    ///
    /// A group spends from the quotas of the rule's policy as if it were one key, so that its figures, its suggestion and its
    /// [frontier](crate::Frontier) say what a limit for the whole network does. It refuses no request of a rule. Requests whose client the
    /// log does not say are left out.
    pub fn groups(mut self) -> Self {
        self.settings.has_groups = true;
        self
    }

    /// Replays logs as if they were one: each with its name and its content, plain or gzip. The log with the earliest next lines goes on,
    /// so their order does not matter, whether one server has rotated its log or several servers share the traffic.
    ///
    /// # Errors
    /// When a log cannot be read, when its format cannot be guessed, when most of its lines are [not
    /// understood](Self::allow_other_lines), and when more than a tenth of its requests come too late to be put in order, as in a log whose
    /// newest lines are first.
    ///
    /// # Panics
    /// When reading one panics.
    ///
    /// ```
    /// use sluicegate_replay::Replay;
    /// # use sluicegate_rules::{RulesFile, Variables};
    /// # let text = "version: 1\npolicies: { p: { quota: 2/min } }\nrules: [{ name: r, limit: p, key: client }]\n";
    /// # let rules = RulesFile::parse("rules.yaml", text, &Variables::none())?;
    /// # let line = |second| format!("192.0.2.7 - - [17/May/2015:10:05:{second:02} +0000] \"GET / HTTP/1.1\" 200 17\n");
    ///
    /// // Two servers share the traffic of one client, and write a log each.
    /// let [one, other] = [[0, 2], [1, 3]].map(|seconds| std::io::Cursor::new(seconds.map(line).concat()));
    /// let outcome = Replay::new(rules)?.run([("one.log", one), ("other.log", other)])?;
    /// assert_eq!((outcome.lines.read, outcome.rules[0].rejected), (4, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Memory
    /// Each rule takes 70 to 100 bytes for each key that it has asked, if its policy has one quota, and 24 bytes for each minute with
    /// requests. Each key takes its bytes and about 40 more. At least ten seconds of requests are held to be put in order. Policies that
    /// need a store have one, with room for 262,144 keys. Up to 32 MiB are kept to find unusual traffic, and about 80 bytes for each
    /// client. Nothing else grows with the lines, except what is kept to [`suggest`](Self::suggest) limits.
    pub fn run<N: Into<String>, R: Read + Send + 'static>(
        &self,
        logs: impl IntoIterator<Item = (N, R)>,
    ) -> Result<ReplayOutcome, ReplayError> {
        let logs: Vec<(String, Box<dyn Read + Send>)> =
            logs.into_iter().map(|(name, log)| (name.into(), Box::new(log) as _)).collect();
        let names: Vec<String> = logs.iter().map(|(name, _)| name.clone()).collect();
        let Self { limits, settings, unread } = self;
        let (rows, named) = Rows::of(limits.clone(), &settings.only, settings.has_groups);
        let mut decider = LogEvaluation::new(&rows, named, settings)?;
        let (mut order, batches) = (Order::default(), Batches::new(logs)?);
        let mut formats = vec![None; names.len()];
        for first in batches.first() {
            formats[first.log] = Some(settings.guess(&names[first.log], first)?);
        }
        let mut counts = ReadCounts::default();
        if formats.iter().any(Option::is_some) {
            let read = formats.iter().cloned().map(|format: Option<LogFormat>| {
                format.map(|LogFormat { wrapping, format }| LogFormat {
                    wrapping,
                    format: format.without(unread),
                })
            });
            let read: Arc<[_]> = read.collect();
            let reader = |_| LineParser::new(Arc::clone(&read), rows.clone(), settings.span.clone());
            let readers = (0..settings.threads.max(1)).map(reader).collect();
            let when = |log: usize, line: &[u8]| read[log].as_ref()?.when(line, &settings.span);
            let mut numbered = Vec::new();
            counts = take_apart(batches, when, readers, |taken| {
                decider.numbered(&taken, &mut numbered);
                let clients = decider.clients(&taken);
                let mut asks = &numbered[..];
                for ((mut came, _, count), client) in taken.requests().zip(clients) {
                    came.client = client;
                    let (own, others) = asks.split_at(count);
                    asks = others;
                    order.push(came, own.iter().copied(), |second| decider.second(second));
                }
            })?;
        }
        let mut known: Vec<Format> = Vec::new();
        for LogFormat { format, .. } in formats.into_iter().flatten() {
            if !known.iter().any(|known| known.to_string() == format.to_string()) {
                known.push(format);
            }
        }
        let (lines, puzzles) = (counts.lines.read - counts.lines.no_request, counts.lines.not_understood);
        if lines > 0 && (puzzles == lines || puzzles * 2 > lines && !settings.allows_other_lines) {
            return Err(not_understood(&names, &known, &counts));
        }
        order.finish(|second| decider.second(second));
        if order.late * 10 > lines {
            return Err(ReplayError::new(format!(
                "{}: {} of {lines} requests are too late to be put in order, as if the newest lines were first: sort the lines by time (tac turns them round), or give logs that follow one another as files of their own",
                names.join(", "),
                order.late
            )));
        }
        let rules: Vec<String> = limits.limiters().map(|(name, _)| name).collect();
        let log = (names, known, settings.within_second);
        Ok(ReplayOutcome::new(log, (counts, order.late, &rules), decider))
    }
}

impl ReplaySettings {
    /// The format of a log with these first lines, and the text around them.
    ///
    /// # Errors
    /// When no format reads most of them, unless one was set.
    fn guess(&self, log: &str, batch: &LineBatch) -> Result<LogFormat, ReplayError> {
        let lines = batch.lines().take(GUESSED_FROM).map(|(_, line)| &batch.bytes[line]);
        let lines: Vec<_> = lines.filter(|line| line.len() <= LONGEST).map(String::from_utf8_lossy).collect();
        let guess = Format::guess(&lines, self.format.as_ref());
        let (problem, other) = match guess {
            Some(Guess { wrapping, format, fits, lines, .. })
                if self.format.is_some()
                    || lines == 0
                    || fits * 2 > lines
                    || self.allows_other_lines && fits > 0 =>
            {
                return Ok(LogFormat { wrapping, format });
            }
            Some(Guess { format, fits, lines, other, .. }) if fits > 0 => (
                format!(
                    "{log}: the format {format} reads {fits} of the first {lines} lines, and no other one reads more"
                ),
                other,
            ),
            guess => {
                (format!("{log}: no format that is known reads a line"), guess.and_then(|guess| guess.other))
            }
        };
        let other = other
            .filter(|_| !self.span.hides_lines)
            .map(|line| format!("; the first that is not read is {line:?}"));
        Err(ReplayError::new(format!("{problem}, so say --format{}", other.unwrap_or_default())))
    }
}

/// The error of logs most of whose lines were not understood.
fn not_understood(names: &[String], formats: &[Format], counts: &ReadCounts) -> ReplayError {
    let formats: Vec<String> = formats.iter().map(ToString::to_string).collect();
    let mut problem = format!(
        "{}: {} of {} lines are not understood in the format {}",
        names.join(", "),
        counts.lines.not_understood,
        counts.lines.read - counts.lines.no_request,
        formats.join(", ")
    );
    if let Some(Puzzle { log, line, reason, begins, .. }) = counts.puzzles.first() {
        let begins = begins.as_ref().map(|begins| format!(": {begins}")).unwrap_or_default();
        let log =
            names.get(*log).filter(|_| names.len() > 1).map(|log| format!("{log}, ")).unwrap_or_default();
        problem.push_str(&format!("; {log}line {line}: {reason}{begins}"));
    }
    ReplayError::new(problem)
}

/// A moment as people write it, in microseconds since the Unix epoch.
///
/// # Errors
/// When it is any other text; the error names the three ways to write a moment.
fn moment(text: &str) -> Result<u64, ReplayError> {
    time::written(text).ok_or_else(|| {
        ReplayError::new(format!(
            "{text:?} is not a time: write 2015-05-17, 2015-05-17 10:05 or 2015-05-17T10:05:03Z"
        ))
    })
}

sluicegate_core::debug_as!(Replay { settings });

// The settings of a replay: [`ReplaySettings`].

/// The way to take requests of one second where the log has whole seconds.
///
/// A log with whole seconds does not say which way is nearer to the truth. Requests of many clients come spread; a page and its images come
/// together. A limit with a burst of a few units sees the difference, one with a large burst does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithinSecond {
    /// Requests come one after the other, evenly over their second.
    ///
    /// Of `n` requests of a second, in the order of the log, the one at place `i` comes `i/n` of a second later. Requests with finer times
    /// keep them.
    #[default]
    Spread,
    /// Requests come at once.
    ///
    /// They come in the order of the log, at the beginning of their second.
    Together,
}

impl WithinSecond {
    /// `spread` or `together`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Together => "together",
        }
    }

    /// The other way.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Spread => Self::Together,
            Self::Together => Self::Spread,
        }
    }
}

/// The settings of a replay.
///
/// They are checked one by one as they are set; a replay lends them to each of its runs.
#[derive(Clone, Debug)]
pub(crate) struct ReplaySettings {
    pub(crate) format: Option<Format>,
    pub(crate) span: ReadRange,
    /// The names of the rules that are replayed; an empty list stands for all.
    pub(crate) only: Vec<String>,
    threads: usize,
    /// Whether most lines may be of something else.
    allows_other_lines: bool,
    pub(crate) within_second: WithinSecond,
    pub(crate) top: usize,
    pub(crate) compares: bool,
    pub(crate) suggests: Option<Share>,
    /// The least share of unusual requests or keys that a suggestion rejects.
    pub(crate) least: Option<Share>,
    /// Whether a suggestion is learned only from requests that are not unusual.
    pub(crate) is_rest_only: bool,
    /// Spans that suggestions are not learned from, each from its beginning to before its end.
    pub(crate) without: Vec<(u64, u64)>,
    /// Networks that suggestions are not learned from.
    pub(crate) without_networks: Vec<IpNet>,
    pub(crate) has_groups: bool,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self {
            format: None,
            span: ReadRange::default(),
            only: Vec::new(),
            threads: 1,
            allows_other_lines: false,
            within_second: WithinSecond::default(),
            top: 10,
            compares: false,
            suggests: None,
            least: None,
            is_rest_only: false,
            without: Vec::new(),
            without_networks: Vec::new(),
            has_groups: false,
        }
    }
}

// Errors that keep a log from being replayed: [`ReplayError`].

/// The reason why nothing was replayed.
///
/// It names the log, the line or the word, and says what to write instead. Retrying without a change helps only if a log
/// could not be read; then the error of the reader is its source. An outcome with lines that were not understood is not an error.
#[derive(Debug)]
pub struct ReplayError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ReplayError {
    /// An error without a source.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// The log of this name cannot be read beyond this line.
    pub(crate) fn reading(log: &str, line: u64, error: io::Error) -> Self {
        Self { message: format!("{log}: it cannot be read behind line {line}"), source: Some(error.into()) }
    }

    /// The rules have a policy that a store in memory cannot keep; the source names it and the reason.
    pub(crate) fn limits(error: impl Error + Send + Sync + 'static) -> Self {
        Self { message: "the rules cannot be replayed in memory".to_owned(), source: Some(error.into()) }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
