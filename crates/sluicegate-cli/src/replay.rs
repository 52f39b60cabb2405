//! `sluicegate replay`.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use sluicegate_replay::{Format, Replay, ReplayOutcome, Share, WithinSecond};
use sluicegate_rules::{RulesFile, Variables};

/// Replay access logs against the rules, on the time of the logs.
#[derive(Args)]
pub(crate) struct ReplayArguments {
    /// The rules file.
    #[arg(long, value_name = "RULES")]
    rules: PathBuf,
    /// The logs, plain or gzip; "-" or none is standard input.
    #[arg(value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// A format by its name, such as combined or json; nginx's log_format or
    /// Apache's LogFormat [default: guessed for each log].
    #[arg(long)]
    format: Option<Format>,
    /// Where lines of JSON have a field, as client=.req.ip; time, method and url
    /// are needed.
    #[arg(long, value_name = "NAME=PATH")]
    field: Vec<String>,
    /// The zone of times that name none, as Europe/Berlin [default: UTC].
    #[arg(long)]
    zone: Option<String>,
    /// Replay logs most of whose lines are of something else.
    #[arg(long)]
    allow_other_lines: bool,
    /// Leave out earlier requests, as 2015-05-17 or 2015-05-17T10:05:03Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Leave out requests at this time and later.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Replay only this rule; may be given several times.
    #[arg(long, value_name = "RULE")]
    only: Vec<String>,
    /// The number of threads that parse lines, up to 256.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// The number of keys to list, those with the most rejections.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// List keys, and lines that are not understood, by number.
    #[arg(long)]
    hide_keys: bool,
    /// How requests of one second came, if the log has whole seconds.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    within_second: WithinSecondOption,
    /// Also count the same quotas under every algorithm.
    #[arg(long)]
    compare: bool,
    /// Suggest the lowest limits that reject at most this share of requests,
    /// as 0.1%, or of keys, as 1%/keys.
    #[arg(long, value_name = "SHARE")]
    suggest: Option<Share>,
    /// Suggest limits that also reject at least this share of unusual requests
    /// or keys, and the highest of them.
    #[arg(long, value_name = "SHARE", requires = "suggest")]
    reject_unusual: Option<Share>,
    /// Learn no suggestion from this span, as
    /// 2015-05-17T10:05..2015-05-17T11:00; may be given several times.
    #[arg(long, value_name = "FROM..TO")]
    without: Vec<String>,
    /// Learn no suggestion from this network, as 198.51.100.0/24; may be given
    /// several times.
    #[arg(long, value_name = "CIDR")]
    without_network: Vec<String>,
    /// Learn suggestions only from requests that are not unusual, and do not
    /// show the suggestion of the whole log.
    #[arg(long)]
    humans: bool,
    /// Also count each rule by network (/24, /48) and by session (address and
    /// user agent).
    #[arg(long)]
    groups: bool,
    /// Exit with status 3 if a rule rejects more than this share.
    #[arg(long, value_name = "SHARE")]
    fail_above: Option<Share>,
    /// Also write the whole result as an HTML page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Also write a picture for a document, as SVG.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum WithinSecondOption {
    /// Evenly over their second.
    #[default]
    Spread,
    /// At once.
    Together,
}

/// The text to print, and the exit status: 3 if more was rejected than allowed, 2 if the logs cannot be replayed.
pub(crate) struct Replayed {
    pub(crate) text: Result<String, String>,
    pub(crate) status: u8,
}

pub(crate) fn run(asked: &ReplayArguments) -> Result<Replayed, String> {
    let replay = replay(asked)?;
    let paths = if asked.logs.is_empty() { vec![PathBuf::from("-")] } else { asked.logs.clone() };
    let logs = paths.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
    let bar = bar(logs.iter().map(|(.., bytes)| *bytes).sum::<Option<u64>>());
    let logs = logs.into_iter().map(|(name, log, _)| (name, bar.wrap_read(log)));
    let outcome = match replay.run(logs) {
        Ok(outcome) => outcome,
        Err(error) => return Ok(Replayed { text: Err(chain(&error)), status: 2 }),
    };
    bar.finish_and_clear();
    let write = |path: &Path, text: String| {
        std::fs::write(path, text)
            .map_err(|error| format!("{}: it cannot be written: {error}", path.display()))
    };
    asked.report.iter().try_for_each(|path| write(path, outcome.to_html()))?;
    asked.picture.iter().try_for_each(|path| write(path, outcome.to_svg()))?;
    let is_above = asked.fail_above.is_some_and(|share| outcome.rejects_more_than(share));
    Ok(Replayed { text: Ok(text(asked, &outcome)), status: if is_above { 3 } else { 0 } })
}

fn replay(asked: &ReplayArguments) -> Result<Replay, String> {
    let file = RulesFile::read(&asked.rules, &Variables::environment().or_placeholders());
    let file = file.map_err(|error| error.to_string())?;
    for warning in file.warnings() {
        // A closed standard error is ignored.
        _ = writeln!(io::stderr(), "{warning}");
    }
    for room in file.rooms() {
        let path = asked.rules.display();
        _ = writeln!(io::stderr(), "{path}: {room}, is left out: its requests count as let in at once");
    }
    for deferring in file.deferring() {
        let path = asked.rules.display();
        _ = writeln!(io::stderr(), "{path}: {deferring}: such requests count as rejected");
    }
    let fields =
        match (&*asked.field, asked.format.as_ref().is_none_or(|format| format.to_string() == "json")) {
            ([], _) => None,
            (fields, true) => Some(format!("json {}", fields.join(" ")).parse::<Format>()?),
            (_, false) => return Err("--field is for --format json".to_owned()),
        };
    let prepared = || {
        let how = match asked.within_second {
            WithinSecondOption::Spread => WithinSecond::Spread,
            WithinSecondOption::Together => WithinSecond::Together,
        };
        // A clock may be a day off; a line that is further ahead is wrong.
        let latest = SystemTime::now() + Duration::from_secs(86_400);
        let latest = latest.duration_since(UNIX_EPOCH).unwrap_or_default();
        let latest_us = u64::try_from(latest.as_micros()).unwrap_or(u64::MAX);
        let mut replay = Replay::new(file)?
            .within_second(how)
            .top(asked.top)
            .threads(asked.threads.into())
            .latest_us(latest_us);
        if let Some(format) = &asked.format {
            replay = replay.format(format.clone());
        }
        if let Some(format) = fields {
            replay = replay.format(format);
        }
        if let Some(zone) = &asked.zone {
            replay = replay.zone(zone)?;
        }
        if asked.allow_other_lines {
            replay = replay.allow_other_lines();
        }
        if let Some(since) = &asked.since {
            replay = replay.since(since)?;
        }
        if let Some(until) = &asked.until {
            replay = replay.until(until)?;
        }
        for rule in &asked.only {
            replay = replay.only(rule)?;
        }
        for span in &asked.without {
            replay = replay.without(span)?;
        }
        for network in &asked.without_network {
            replay = replay.without_network(network)?;
        }
        if let Some(share) = asked.reject_unusual {
            replay = replay.reject_unusual(share);
        }
        if asked.humans {
            replay = replay.humans();
        }
        if asked.groups {
            replay = replay.groups();
        }
        if asked.hide_keys {
            replay = replay.hide_keys();
        }
        if asked.compare {
            replay = replay.compare();
        }
        Ok(match asked.suggest {
            Some(share) => replay.suggest(share),
            None => replay,
        })
    };
    prepared().map_err(|error: sluicegate_replay::ReplayError| chain(&error))
}

fn text(asked: &ReplayArguments, outcome: &ReplayOutcome) -> String {
    if asked.json { outcome.to_json() + "\n" } else { outcome.to_string() }
}

/// An open log: its name, its content, and its size if it is known.
type Opened = (String, Box<dyn Read + Send>, Option<u64>);

fn open(path: &Path) -> Result<Opened, String> {
    if path == Path::new("-") {
        return Ok(("standard input".to_owned(), Box::new(io::stdin()), None));
    }
    let file = File::open(path).map_err(|error| format!("{}: it cannot be read: {error}", path.display()))?;
    let bytes = file.metadata().ok().map(|metadata| metadata.len());
    Ok((path.display().to_string(), Box::new(file), bytes))
}

/// A progress bar, hidden if standard error is not a terminal.
fn bar(bytes: Option<u64>) -> ProgressBar {
    let bar = bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = "{bytes} of {total_bytes} {wide_bar} {eta}";
    match ProgressStyle::with_template(template) {
        Ok(style) if bytes.is_some() => bar.with_style(style),
        _ => bar,
    }
}

/// An error with the chain of its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
