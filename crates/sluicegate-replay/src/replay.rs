//! A replay, with its settings: [`Replay`].

use std::io::Read;

use sluicegate_core::MemoryStore;
use sluicegate_rules::{Rules, RulesFile};
use sluicegate_tower::limits::Limits;

use crate::decide::Decider;
use crate::error::ReplayError;
use crate::format::{Format, time};
use crate::lines::{Line, Lines};
use crate::order::Order;
use crate::outcome::Outcome;
use crate::read::{Reader, Rows, Span};
use crate::share::Share;

/// How requests of one second are taken where the log has whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithinSecond {
    /// They come one after the other, evenly over their second.
    #[default]
    Spread,
    /// They come at once.
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
}

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
    settings: Settings,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    format: Option<Format>,
    span: Span,
    only: Vec<String>,
    pub(crate) within_second: WithinSecond,
    pub(crate) top: usize,
    pub(crate) hides_keys: bool,
    pub(crate) compares: bool,
    pub(crate) suggests: Option<Share>,
}

/// How many lines are looked at to guess the format.
const GUESSED_FROM: usize = 100;

impl Replay {
    /// A replay of these rules.
    ///
    /// # Errors
    /// When a store in memory cannot keep one of their policies.
    pub fn new(rules: RulesFile) -> Result<Self, ReplayError> {
        // Nothing is spent here: each replay has stores of its own.
        let store = MemoryStore::builder().keys(1).build().map_err(ReplayError::limits)?;
        let limits = Rules::new(&store, rules).map_err(ReplayError::limits)?.limits();
        let settings = Settings {
            format: None,
            span: Span::default(),
            only: Vec::new(),
            within_second: WithinSecond::Spread,
            top: 10,
            hides_keys: false,
            compares: false,
            suggests: None,
        };
        Ok(Self { limits, settings })
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

    /// Lists keys by number and not as they are.
    pub fn hide_keys(mut self) -> Self {
        self.settings.hides_keys = true;
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

    /// Replays logs, one after the other as if they were one: each its name and what it holds, plain or gzip.
    ///
    /// # Errors
    /// When a log cannot be read, or its format cannot be guessed.
    pub fn run<N: Into<String>, R: Read + Send + 'static>(
        &self,
        logs: impl IntoIterator<Item = (N, R)>,
    ) -> Result<Outcome, ReplayError> {
        let mut run = Run::new(self)?;
        let mut names = Vec::new();
        for (name, log) in logs {
            names.push(name.into());
            run.log(log)?;
        }
        run.finish(names)
    }
}

fn moment(text: &str) -> Result<u64, ReplayError> {
    time::written(text).ok_or_else(|| {
        ReplayError::new(format!(
            "{text:?} is not a time: write 2015-05-17, 2015-05-17 10:05 or 2015-05-17T10:05:03Z"
        ))
    })
}

/// A replay under way.
struct Run<'a> {
    settings: &'a Settings,
    rows: Rows,
    /// Once the format is known.
    reader: Option<(Format, Reader)>,
    /// Lines that were read before that.
    held: Vec<(u64, Vec<u8>, Line)>,
    order: Order<crate::read::Asked>,
    decider: Decider,
    lines: u64,
}

impl<'a> Run<'a> {
    fn new(Replay { limits, settings }: &'a Replay) -> Result<Self, ReplayError> {
        let (rows, named) = Rows::of(limits.clone(), &settings.only);
        let decider = Decider::new(limits.clone(), named, settings)?;
        let mut run = Self {
            settings,
            rows,
            reader: None,
            held: Vec::new(),
            order: Order::default(),
            decider,
            lines: 0,
        };
        if let Some(format) = &settings.format {
            run.reads(format.clone());
        }
        Ok(run)
    }

    fn reads(&mut self, format: Format) {
        let reader = Reader::new(format.clone(), self.rows.clone(), self.settings.span.clone());
        self.reader = Some((format, reader));
    }

    fn log(&mut self, log: impl Read + Send + 'static) -> Result<(), ReplayError> {
        let mut lines = Lines::new(log).map_err(ReplayError::reading)?;
        let mut line = Vec::new();
        while let Some(kind) = lines.next(&mut line).map_err(ReplayError::reading)? {
            self.lines += 1;
            if self.reader.is_some() {
                self.line(self.lines, &line, kind);
                continue;
            }
            self.held.push((self.lines, std::mem::take(&mut line), kind));
            if self.held.len() >= GUESSED_FROM {
                self.guess()?;
            }
        }
        Ok(())
    }

    fn line(&mut self, number: u64, line: &[u8], kind: Line) {
        let Some((_, reader)) = &mut self.reader else { return };
        match kind {
            Line::TooLong => reader.too_long(number, line),
            Line::Whole => {
                if let Some(timed) = reader.line(number, line) {
                    let decider = &mut self.decider;
                    self.order.push(timed, |second| decider.second(second));
                }
            }
        }
    }

    /// Finds the format of what was read so far.
    fn guess(&mut self) -> Result<(), ReplayError> {
        let held = std::mem::take(&mut self.held);
        let lines: Vec<_> = held.iter().map(|(_, line, _)| String::from_utf8_lossy(line)).collect();
        let Some(format) = Format::guess(lines.iter().map(|line| &**line)) else {
            let first = held
                .first()
                .map(|(_, line, _)| String::from_utf8_lossy(line).chars().take(160).collect::<String>());
            return Err(ReplayError::new(format!(
                "no line is in the format combined, common or json, so say --format; the first one is {:?}",
                first.unwrap_or_default()
            )));
        };
        self.reads(format);
        for (number, line, kind) in held {
            self.line(number, &line, kind);
        }
        Ok(())
    }

    fn finish(mut self, logs: Vec<String>) -> Result<Outcome, ReplayError> {
        if self.reader.is_none() && !self.held.is_empty() {
            self.guess()?;
        }
        let decider = &mut self.decider;
        self.order.finish(|second| decider.second(second));
        let (format, counts) = self.reader.map(|(format, reader)| (format, reader.counts)).unzip();
        let names: Vec<String> = self.rows.limits.limiters().map(|(name, _)| name).collect();
        Ok(Outcome::new(
            (logs, format, self.settings.within_second),
            (counts.unwrap_or_default(), self.order.late, &names),
            self.decider,
            self.settings,
        ))
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("settings", &self.settings).finish_non_exhaustive()
    }
}
