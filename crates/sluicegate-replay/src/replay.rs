//! A replay, with its settings: [`Replay`].

use std::io::Read;

use http::HeaderName;
use sluicegate_core::MemoryStore;
use sluicegate_rules::{Rules, RulesFile};
use sluicegate_tower::limits::Limits;

use crate::counts::{Counts, Puzzle};
use crate::decide::Decider;
use crate::error::ReplayError;
use crate::format::{Format, time};
use crate::lines::{Batch, Batches, LONGEST};
use crate::order::Order;
use crate::outcome::Outcome;
use crate::pool;
use crate::read::Reader;
use crate::rows::Rows;
use crate::settings::{Settings, WithinSecond};
use crate::share::Share;

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
#[must_use = "a replay does nothing until it runs"]
pub struct Replay {
    limits: Limits,
    /// Header fields that most logs have and no rule reads.
    unread: Vec<HeaderName>,
    settings: Settings,
}

/// How many lines are looked at to guess the format.
const GUESSED_FROM: usize = 100;

impl Replay {
    /// A replay of these rules. Their waiting rooms are left out: a log does not say who waited, so that all requests count as let in.
    ///
    /// # Errors
    /// When a store in memory cannot keep one of their policies.
    pub fn new(rules: RulesFile) -> Result<Self, ReplayError> {
        // Nothing is spent here: each replay has stores of its own.
        let clients_say = [http::header::REFERER, http::header::USER_AGENT];
        let unread = clients_say.into_iter().filter(|name| !rules.may_mention(name.as_str())).collect();
        let store = MemoryStore::builder().keys(1).build().map_err(ReplayError::limits)?;
        let rules = rules.without_store().without_rooms();
        let limits = Rules::new(&store, rules).map_err(ReplayError::limits)?.limits();
        Ok(Self { limits, unread, settings: Settings::default() })
    }

    /// How the lines are written. Default: it is guessed from the first hundred.
    pub fn format(mut self, format: Format) -> Self {
        self.settings.format = Some(format);
        self
    }

    /// How requests of one second are taken where the log has whole seconds. Default: spread over it.
    pub fn within_second(mut self, how: WithinSecond) -> Self {
        self.settings.within_second = how;
        self
    }

    /// Leaves out requests before this time: `2015-05-17`, `2015-05-17 10:05`, `2015-05-17T10:05:03+02:00`; UTC unless it says
    /// a zone.
    ///
    /// # Errors
    /// When it is not a time.
    pub fn since(mut self, time: &str) -> Result<Self, ReplayError> {
        self.settings.span.since_us = Some(moment(time)?);
        Ok(self)
    }

    /// Leaves out requests at this time and after it.
    ///
    /// # Errors
    /// When it is not a time.
    pub fn until(mut self, time: &str) -> Result<Self, ReplayError> {
        self.settings.span.until_us = Some(moment(time)?);
        Ok(self)
    }

    /// Takes lines with a time after this one, in microseconds since the Unix epoch, as not understood. Default: none is.
    pub fn latest_us(mut self, latest_us: u64) -> Self {
        self.settings.span.latest_us = Some(latest_us);
        self
    }

    /// Replays only the rule of this name; may be called several times.
    ///
    /// # Errors
    /// When there is no such rule.
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

    /// How many of the keys with the most rejections are listed. Default: 10.
    pub fn top(mut self, keys: usize) -> Self {
        self.settings.top = keys;
        self
    }

    /// Lists keys, and lines that are not understood, by number and not as they are.
    pub fn hide_keys(mut self) -> Self {
        self.settings.span.hides_lines = true;
        self
    }

    /// How many threads take lines apart, beside one that reads them and one that decides. Default: 1. The figures are the same.
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.threads = threads;
        self
    }

    /// Also counts what the same quotas would have rejected under every algorithm.
    pub fn compare(mut self) -> Self {
        self.settings.compares = true;
        self
    }

    /// Also looks for the least limits above which none rejects more than this share.
    pub fn suggest(mut self, share: Share) -> Self {
        self.settings.suggests = Some(share);
        self
    }

    /// Replays logs as if they were one: each its name and what it holds, plain or gzip. Of several logs the one goes on whose next
    /// lines are the earliest, so their order does not matter, whether one server has turned its log over or several share the
    /// traffic.
    ///
    /// # Errors
    /// When a log cannot be read, when its format cannot be guessed, and when it has lines but none that is understood.
    ///
    /// # Panics
    /// When reading one panics.
    pub fn run<N: Into<String>, R: Read + Send + 'static>(
        &self,
        logs: impl IntoIterator<Item = (N, R)>,
    ) -> Result<Outcome, ReplayError> {
        let logs: Vec<(String, Box<dyn Read + Send>)> =
            logs.into_iter().map(|(name, log)| (name.into(), Box::new(log) as _)).collect();
        let names: Vec<String> = logs.iter().map(|(name, _)| name.clone()).collect();
        let Self { limits, settings, unread } = self;
        let (rows, named) = Rows::of(limits.clone(), &settings.only);
        let mut decider = Decider::new(limits.clone(), named, settings)?;
        let (mut order, batches) = (Order::default(), Batches::new(logs)?);
        let (mut format, mut counts) = (settings.format.clone(), Counts::default());
        if let Some(first) = batches.first() {
            let format = format.get_or_insert(match &settings.format {
                Some(format) => format.clone(),
                None => guess(first, settings.span.hides_lines)?,
            });
            let read = format.clone().without(unread);
            let reader = |_| Reader::new(read.clone(), rows.clone(), settings.span.clone());
            let readers = (0..settings.threads.max(1)).map(reader).collect();
            let latest_us = settings.span.latest_us;
            let has_come = |time: &u64| latest_us.is_none_or(|latest| *time <= latest);
            let when = |line: &[u8]| format.when(line).filter(has_come);
            let mut numbered = Vec::new();
            counts = pool::take_apart(batches, when, readers, |taken| {
                // All keys of a batch at once: a look waits for memory, and the next ones begin meanwhile.
                numbered.clear();
                numbered.extend(taken.asks().map(|(ask, key)| decider.numbered(ask, key)));
                let mut asks = &numbered[..];
                for (came, count) in taken.requests() {
                    let (own, others) = asks.split_at(count);
                    asks = others;
                    order.push(came, own.iter().copied(), |second| decider.second(second));
                }
            })?;
        }
        if counts.read > 0 && counts.not_understood == counts.read {
            return Err(not_understood(&names, format.as_ref(), &counts));
        }
        order.finish(|second| decider.second(second));
        let rules: Vec<String> = limits.limiters().map(|(name, _)| name).collect();
        let log = (names, format, settings.within_second);
        Ok(Outcome::new(log, (counts, order.late, &rules), decider, settings))
    }
}

/// The format of the first lines.
fn guess(batch: &Batch, hides_lines: bool) -> Result<Format, ReplayError> {
    let lines = batch.lines().take(GUESSED_FROM).map(|(_, line)| &batch.bytes[line]);
    let lines: Vec<_> = lines.filter(|line| line.len() <= LONGEST).map(String::from_utf8_lossy).collect();
    Format::guess(lines.iter().map(|line| &**line)).ok_or_else(|| {
        let problem = "no line is in the format combined, common or json, so say --format";
        let first: String = lines.first().map(|line| line.chars().take(160).collect()).unwrap_or_default();
        ReplayError::new(match hides_lines {
            true => problem.to_owned(),
            false => format!("{problem}; the first one is {first:?}"),
        })
    })
}

/// Of all lines, none was understood.
fn not_understood(names: &[String], format: Option<&Format>, counts: &Counts) -> ReplayError {
    let format = format.map(ToString::to_string).unwrap_or_default();
    let mut problem =
        format!("{}: none of {} lines is understood in the format {format}", names.join(", "), counts.read);
    if let Some(Puzzle { log, line, reason, begins, .. }) = counts.shown.first() {
        let begins = begins.as_ref().map(|begins| format!(": {begins}")).unwrap_or_default();
        let log =
            names.get(*log).filter(|_| names.len() > 1).map(|log| format!("{log}, ")).unwrap_or_default();
        problem.push_str(&format!("; {log}line {line}: {reason}{begins}"));
    }
    ReplayError::new(problem)
}

fn moment(text: &str) -> Result<u64, ReplayError> {
    time::written(text).ok_or_else(|| {
        ReplayError::new(format!(
            "{text:?} is not a time: write 2015-05-17, 2015-05-17 10:05 or 2015-05-17T10:05:03Z"
        ))
    })
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("settings", &self.settings).finish_non_exhaustive()
    }
}
