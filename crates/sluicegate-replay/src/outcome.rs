//! The findings of a replay: [`ReplayOutcome`].
//!
//! An outcome is data. The table, the JSON, the page and the picture have files of their own, which read the outcome and compute nothing
//! that it does not have.

use crate::counts::{Puzzle, ReadCounts};
use crate::judge::LogEvaluation;
use crate::judge::RuleFigures;
use crate::read::Format;
use crate::settings::WithinSecond;
use crate::share::Share;
use crate::unusual::Unusual;

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
    /// The format of their lines; `None` if there was no line.
    pub format: Option<Format>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineCounts {
    /// All lines.
    ///
    /// The lines of all logs together, empty ones too.
    pub read: u64,
    /// Lines that could not be understood.
    pub not_understood: u64,
    /// The first lines that were not understood.
    ///
    /// There are at most ten. All of them are counted in [`not_understood`](Self::not_understood).
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// | `the client is not an address` | a host name was logged, and its address is unknown |
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
        (logs, format, within_second): (Vec<String>, Option<Format>, WithinSecond),
        (counts, late, names): (ReadCounts, u64, &[String]),
        decider: LogEvaluation,
    ) -> Self {
        let left_out = counts.left_out.all().map(|(limit, reason, count)| LeftOut {
            rule: names.get(limit).cloned().unwrap_or_default(),
            count,
            reason: reason.to_owned(),
        });
        let mut left_out: Vec<LeftOut> = left_out.collect();
        let shown = counts.shown.into_iter().map(|Puzzle { log, line, reason, begins, .. }| NotUnderstood {
            log: logs.get(log).cloned().unwrap_or_default(),
            line,
            reason,
            begins,
        });
        let shown = shown.collect();
        left_out.sort_unstable_by(|a, b| (&a.rule, &a.reason).cmp(&(&b.rule, &b.reason)));
        let (span, forgotten) = (decider.span, decider.forgotten());
        let (rules, unusual) = decider.finish(&counts.marks);
        Self {
            logs,
            format,
            within_second,
            has_whole_seconds: rules.iter().any(|rule| rule.rejected_otherwise.is_some()),
            lines: LineCounts {
                read: counts.read,
                not_understood: counts.not_understood,
                shown,
                late,
                outside: counts.outside,
                exempt: counts.exempt,
                blocked: counts.blocked,
            },
            left_out,
            span,
            forgotten,
            is_as_logged: counts.is_as_logged,
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
