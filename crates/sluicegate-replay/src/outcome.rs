//! The findings of a replay: [`Outcome`].

use crate::counts::{Counts, Puzzle};
use crate::decide::Decider;
use crate::figures::RuleFigures;
use crate::format::Format;
use crate::settings::{Settings, WithinSecond};
use crate::share::Share;

/// The findings of a replay. `Display` is a table for a terminal, [`to_json`](Self::to_json) one object for programs,
/// [`to_html`](Self::to_html) a page.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The names of the logs.
    pub logs: Vec<String>,
    /// The format of their lines; `None` if there was no line.
    pub format: Option<Format>,
    /// How whole seconds were taken.
    pub within_second: WithinSecond,
    /// Whether the log has whole seconds.
    pub has_whole_seconds: bool,
    /// How many lines came to what.
    pub lines: LineCounts,
    /// Why requests were not asked of a rule, and how many.
    pub left_out: Vec<LeftOut>,
    /// The first and the last moment that was replayed, in microseconds since the Unix epoch.
    pub span: Option<(u64, u64)>,
    /// Keys that were forgotten before they were at rest, because the store that replays had no room for more.
    pub forgotten: u64,
    /// The figures of each rule under each of its policies.
    pub rules: Vec<RuleFigures>,
}

/// How many lines came to what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineCounts {
    /// All.
    pub read: u64,
    /// Lines that could not be understood.
    pub not_understood: u64,
    /// The first of these.
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
    /// Its number in its log, from 1.
    pub line: u64,
    /// Why it was not understood.
    pub reason: &'static str,
    /// How it begins; `None` where keys are hidden, because a line may hold one.
    pub begins: Option<String>,
}

/// Requests that a rule could not be asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The name of the rule.
    pub rule: String,
    /// How many requests.
    pub count: u64,
    /// Why.
    pub reason: String,
}

impl Outcome {
    pub(crate) fn new(
        (logs, format, within_second): (Vec<String>, Option<Format>, WithinSecond),
        (counts, late, names): (Counts, u64, &[String]),
        decider: Decider,
        settings: &Settings,
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
        let rules = decider.finish(settings);
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
            rules,
        }
    }

    /// Whether a rule rejects more than this share of its requests or keys.
    pub fn rejects_more_than(&self, share: Share) -> bool {
        self.rules.iter().any(|rule| match share.is_of_keys() {
            true => !share.covers(rule.rejected_keys, rule.keys),
            false => !share.covers(rule.rejected, rule.asked),
        })
    }
}
