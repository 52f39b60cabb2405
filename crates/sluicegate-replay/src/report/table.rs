//! The outcome as text for a terminal.
//!
//! It is meant for people and may change; programs read the [object](ReplayOutcome::to_json).

use std::fmt;
use std::time::Duration;

use crate::judge::RuleFigures;
use crate::outcome::{NotUnderstood, ReplayOutcome};
use crate::read::time::shown;
use crate::report::json::{quota, quotas};

/// The first column is aligned to the left, numbers to the right.
const HEAD: [&str; 8] =
    ["rule/policy", "asked", "rejected", "keys", "rejected keys", "worst minute", "shortest wait", "longest"];

impl fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.remarks() {
            writeln!(f, "{line}")?;
        }
        let rows: Vec<[String; 8]> = self.rules.iter().map(|rule| self.row(rule)).collect();
        let width = |column: usize| {
            let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            longest.max(HEAD[column].len())
        };
        let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
        writeln!(f)?;
        write_row(f, &HEAD.map(str::to_owned), &widths)?;
        rows.iter().try_for_each(|row| write_row(f, row, &widths))?;
        self.rules.iter().filter(|rule| rule.asked > 0).try_for_each(|rule| details(f, rule))
    }
}

impl ReplayOutcome {
    /// Remarks that a reader needs beside the figures.
    pub(super) fn remarks(&self) -> Vec<String> {
        let lines = &self.lines;
        let resolution = match (self.has_whole_seconds, self.rules.iter().all(|rule| rule.asked == 0)) {
            (_, true) => String::new(),
            (true, _) => format!("; whole seconds, {}", self.within_second.as_str()),
            (false, _) => "; finer than seconds".to_owned(),
        };
        let format =
            self.format.as_ref().map_or_else(|| "no line".to_owned(), |format| format!("format {format}"));
        let mut remarks = vec![format!(
            "{}: {format}, {} lines read, {} not understood{resolution}; clients do not react",
            self.logs.join(", "),
            lines.read,
            lines.not_understood
        )];
        if let Some((from, to)) = self.span {
            remarks.push(format!("from {} to {} UTC", shown(from, true), shown(to, true)));
        }
        if self.format.is_some() && !self.knows_arrival() {
            remarks.push(
                "time: as logged, which is the end of a request for nginx and its beginning for Apache"
                    .to_owned(),
            );
        }
        let counts = [
            (
                lines.late,
                "lines came more than 10 s and 32,768 requests too late, and count as of the earliest moment that was open",
            ),
            (lines.outside, "lines are outside of the time that was asked for"),
            (lines.exempt, "requests are exempt"),
            (lines.blocked, "requests are denied before all limits"),
            (self.forgotten, "keys were forgotten before they were at rest: a policy has too few `keys`"),
        ];
        remarks.extend(
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
        );
        for left in &self.left_out {
            remarks.push(format!("{} requests left out of rule {}: {}", left.count, left.rule, left.reason));
        }
        for line in &lines.shown {
            let begins = line.begins.as_ref().map(|begins| format!(": {begins}")).unwrap_or_default();
            remarks.push(format!("{}: {}{begins}", self.place(line), line.reason));
        }
        remarks
    }

    /// The place of a line, with its log if there are several.
    pub(super) fn place(&self, line: &NotUnderstood) -> String {
        match self.logs.len() {
            0 | 1 => format!("line {}", line.line),
            _ => format!("{}, line {}", line.log, line.line),
        }
    }

    fn row(&self, rule: &RuleFigures) -> [String; 8] {
        [
            format!("{}/{}", rule.name, rule.policy.name()),
            rule.asked.to_string(),
            self.rejected(rule),
            rule.keys.to_string(),
            rule.rejected_keys.to_string(),
            rule.worst.map_or_else(
                || "-".to_owned(),
                |worst| format!("{} ({}/min)", shown(worst.at_us, false), worst.per_minute),
            ),
            wait(rule.shortest_wait),
            wait(rule.longest_wait),
        ]
    }

    /// The number of rejections, and their number with whole seconds taken the other way.
    pub(super) fn rejected(&self, rule: &RuleFigures) -> String {
        let other = self.within_second.other().as_str();
        match rule.rejected_otherwise {
            Some(otherwise) => format!("{} ({other} {otherwise})", rule.rejected),
            None => rule.rejected.to_string(),
        }
    }
}

fn details(f: &mut fmt::Formatter<'_>, rule: &RuleFigures) -> fmt::Result {
    let per = &rule.per_minute;
    writeln!(f, "\n{}/{}: {}", rule.name, rule.policy.name(), quota(rule))?;
    writeln!(
        f,
        "  requests per key and minute: p50 {}, p90 {}, p99 {}, max {}",
        per.p50, per.p90, per.p99, per.max
    )?;
    if !rule.compared.is_empty() {
        let compared: Vec<String> = rule.compared.iter().map(compared).collect();
        writeln!(f, "  alone, under each algorithm: {}", compared.join(" | "))?;
    }
    if let Some(found) = &rule.suggestion {
        writeln!(f, "  suggestion: {}", suggestion(found))?;
    }
    if let Some(why) = rule.no_suggestion {
        writeln!(f, "  no suggestion: {why}")?;
    }
    if rule.own_quotas > 0 {
        writeln!(f, "  under quotas of their own: {} requests", rule.own_quotas)?;
    }
    rule.top.iter().try_for_each(|key| {
        let own = key.quotas.as_ref().map(|own| format!(" under {own}")).unwrap_or_default();
        writeln!(f, "  {}: {} of {} rejected{own}", key.key, key.rejected, key.asked)
    })
}

pub(super) fn suggestion(found: &crate::Suggestion) -> String {
    let about =
        if found.uncertainty > 0 { format!(" (give or take {})", found.uncertainty) } else { String::new() };
    let mut text = format!(
        "{}: alone it rejects {}{about} of {} (at most {} asked for)",
        quotas(&found.policy),
        counted(found.rejected, "request"),
        counted(found.rejected_keys, "key"),
        found.share
    );
    if let Some(together) = found.together {
        text.push_str(&format!("; {together} beside the other suggestions"));
    }
    if found.step > 1 {
        text.push_str(&format!("; limits were looked at in steps of {}", found.step));
    }
    text
}

/// A number of things, in words.
pub(super) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

pub(super) fn compared(compared: &crate::Compared) -> String {
    let burst = if compared.drops_burst { " (without the burst)" } else { "" };
    match &compared.rejected {
        Ok(rejected) => format!("{} {rejected}{burst}", compared.algorithm),
        Err(_) => format!("{} cannot keep it", compared.algorithm),
    }
}

/// Seconds with one digit; a wait below a twentieth of a second shows as 0.0 s.
pub(super) fn wait(wait: Option<Duration>) -> String {
    wait.map_or_else(|| "-".to_owned(), |wait| format!("{:.1} s", wait.as_secs_f64()))
}

/// Writes names to the left, numbers to the right.
fn write_row(f: &mut fmt::Formatter<'_>, row: &[String; 8], widths: &[usize]) -> fmt::Result {
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        match column {
            0 => write!(f, "{cell:<width$}")?,
            _ => write!(f, "  {cell:>width$}")?,
        }
    }
    writeln!(f)
}
