//! The outcome as text for a terminal.
//!
//! It is meant for people and may change; programs read the [object](ReplayOutcome::to_json).

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use maud::{Markup, html};
use sluicegate_plots::Table;

use crate::judge::RuleFigures;
use crate::outcome::{
    Counted, Forwarded, Frontier, FrontierPoint, NotUnderstood, ReplayOutcome, Unusual, UnusualSide,
};
use crate::read::time::shown;
use crate::report::{quota, quotas};

/// The first column is aligned to the left, numbers to the right.
const HEAD: [&str; 8] =
    ["rule/policy", "asked", "rejected", "keys", "rejected keys", "worst minute", "shortest wait", "longest"];

impl fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.remarks() {
            writeln!(f, "{line}")?;
        }
        if !self.unusual.is_empty() {
            writeln!(f, "\nunusual in this log:")?;
            self.unusual.iter().try_for_each(|found| writeln!(f, "  {}", unusual(found)))?;
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
        let span = self.unusual_span();
        self.rules.iter().filter(|rule| rule.asked > 0).try_for_each(|rule| details(f, rule, span.as_deref()))
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
        let format = match &*self.formats {
            [] => "no line".to_owned(),
            _ => format!("format {}", self.format_names()),
        };
        let mut remarks = vec![format!(
            "{}: {format}, {} read, {} not understood{resolution}; clients do not react",
            self.logs.join(", "),
            counted(lines.read, "line"),
            lines.not_understood
        )];
        if let Some((from, to)) = self.span {
            remarks.push(format!("from {} to {} UTC", shown(from, true), shown(to, true)));
        }
        if !self.formats.is_empty() {
            remarks.push(match self.knows_arrival() {
                true => "time: the beginning of each request".to_owned(),
                false => {
                    "time: as logged, which is the end of a request for nginx and its beginning for Apache"
                        .to_owned()
                }
            });
        }
        if self.forwarded == Forwarded::Nowhere {
            remarks.push(
                "CLIENTS: the rules have proxies, but no line names a client behind one: each address of the log counts as a client. If they are of proxies, log the header field too, as $http_x_forwarded_for"
                    .to_owned(),
            );
        }
        let counts = [
            (
                lines.late,
                "line",
                "came more than 10 s and 32,768 requests too late, counted as of the earliest moment that was open",
            ),
            (lines.no_request, "line", "of no request"),
            (lines.outside, "line", "outside of the time that was asked for"),
            (lines.exempt, "request", "exempt"),
            (lines.blocked, "request", "denied before all limits"),
            (self.forgotten, "key", "forgotten before it was at rest: a policy has too few `keys`"),
        ];
        remarks.extend(
            counts
                .iter()
                .filter(|(count, ..)| *count > 0)
                .map(|(count, thing, what)| format!("{} {what}", counted(*count, thing))),
        );
        for left in &self.left_out {
            let requests = counted(left.count, "request");
            remarks.push(format!("{requests} left out of rule {}: {}", left.rule, left.reason));
        }
        for line in &lines.shown {
            let begins = line.begins.as_ref().map(|begins| format!(": {begins}")).unwrap_or_default();
            remarks.push(format!("{}: {}{begins}", self.place(line), line.reason));
        }
        remarks
    }

    /// The names of the formats.
    pub(super) fn format_names(&self) -> String {
        self.formats.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The place of a line, with its log if there are several.
    pub(super) fn place(&self, line: &NotUnderstood) -> String {
        match self.logs.len() {
            0 | 1 => format!("line {}", line.line),
            _ => format!("{}, line {}", line.log, line.line),
        }
    }

    /// The span from the beginning of the first unusual part to the end of the last.
    pub(super) fn unusual_span(&self) -> Option<String> {
        let from = self.unusual.iter().map(|found| found.from_us).min()?;
        let to = self.unusual.iter().map(|found| found.to_us).max()?;
        Some(format!("{} to {}", shown(from, false), shown(to, false)))
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
    fn rejected(&self, rule: &RuleFigures) -> String {
        let other = self.within_second.other().as_str();
        match rule.rejected_otherwise {
            Some(otherwise) => format!("{} ({other} {otherwise})", rule.rejected),
            None => rule.rejected.to_string(),
        }
    }
}

fn details(f: &mut fmt::Formatter<'_>, rule: &RuleFigures, span: Option<&str>) -> fmt::Result {
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
        if let Some(side) = &found.unusual {
            writeln!(f, "  {}", not_learned(side, span))?;
        }
    }
    if let Some(why) = rule.no_suggestion {
        writeln!(f, "  no suggestion: {why}")?;
    }
    if let Some(frontier) = &rule.frontier {
        picture(f, rule, frontier)?;
    }
    if rule.own_quotas > 0 {
        writeln!(f, "  under quotas of their own: {}", counted(rule.own_quotas, "request"))?;
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

/// The part of the log that a suggestion was not learned from, and the one that is learned from all of it.
pub(super) fn not_learned(side: &UnusualSide, span: Option<&str>) -> String {
    let mut text = format!(
        "not learned from {} of {} that are unusual or left out: it rejects {} of them",
        counted(side.asked.requests, "request"),
        counted(side.asked.keys, "key"),
        side.rejected.requests
    );
    if let Some(share) = side.share {
        text.push_str(&format!(" (at least {share} asked for)"));
    }
    if let Some(with) = &side.with {
        let span = span.map(|span| format!(" ({span})")).unwrap_or_default();
        let quotas = quotas(&with.policy);
        text.push_str(&format!("; {quotas} if it is learned from what is unusual too{span}"));
    }
    text
}

/// An unusual part of the log, with its span.
pub(super) fn unusual(found: &Unusual) -> String {
    let Unusual { what, from_us, to_us, requests, keys, .. } = found;
    let (from, to) = (shown(*from_us, false), shown(*to_us, false));
    let (requests, keys) = (counted(*requests, "request"), counted(*keys, "key"));
    format!("{from} to {to}: {what} ({requests} of {keys})")
}

/// A part in percent, with as many digits as a small one needs.
fn percent(part: Counted, all: Counted) -> String {
    let hundredths = part.part(all) / 100_000;
    match hundredths {
        0 if part.requests > 0 => "< 0.01 %".to_owned(),
        _ => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// The frontier as a few lines: its knees, the suggestion and the ends, each with a bar for the unusual requests that it rejects.
fn picture(f: &mut fmt::Formatter<'_>, rule: &RuleFigures, frontier: &Frontier) -> fmt::Result {
    writeln!(
        f,
        "  rejected of {} ordinary and {} unusual requests, by limit:",
        frontier.ordinary.requests, frontier.unusual.requests
    )?;
    let suggested = rule.suggestion.as_ref().map(|found| found.limit);
    let is_knee = |limit: u64| frontier.knees.iter().any(|knee| knee.limit == limit);
    let every = frontier.points.len().div_ceil(6).max(1);
    let shown = frontier.points.iter().enumerate().filter(|(place, point)| {
        place % every == 0 || is_knee(point.limit) || Some(point.limit) == suggested
    });
    for (_, point) in shown {
        let mark = match () {
            () if Some(point.limit) == suggested => "  suggested",
            () if is_knee(point.limit) => "  knee",
            () => "",
        };
        let part = point.unusual.part(frontier.unusual);
        let bar = "#".repeat(usize::try_from(part / 50_000_000).unwrap_or(0));
        let [ordinary, unusual] =
            [percent(point.ordinary, frontier.ordinary), percent(point.unusual, frontier.unusual)];
        writeln!(f, "  {:>8}  {ordinary:>9}  {unusual:>9}  {bar:<20}{mark}", point.limit)?;
    }
    Ok(())
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

// The frontier of a rule on the page: a small curve, its knees, and all of its limits as a table.
//
// Both axes go from nothing to all. The axis of ordinary requests shows the square root of their part, because the relevant values are small.

/// The size of the square of the curve, and the room around it.
const SIDE: u64 = 200;
const LEFT: u64 = 52;
const BELOW: u64 = 36;

pub(super) fn figure(rule: &RuleFigures, frontier: &Frontier) -> Markup {
    let Frontier { ordinary, unusual, points, knees } = frontier;
    let suggested = rule.suggestion.as_ref().map(|found| found.limit);
    let place = |point: &FrontierPoint| {
        let across = (u128::from(point.ordinary.part(*ordinary)) * u128::from(WHOLE)).isqrt();
        let across = u64::try_from(across).unwrap_or(WHOLE);
        (LEFT + across * SIDE / WHOLE, SIDE + 8 - point.unusual.part(*unusual) * SIDE / WHOLE)
    };
    let mut curve = String::new();
    for (number, point) in points.iter().enumerate() {
        let (x, y) = place(point);
        _ = write!(curve, "{}{x} {y}", if number == 0 { "M" } else { "L" });
    }
    let is_marked = |point: &&FrontierPoint| knees.contains(point) || Some(point.limit) == suggested;
    let (wide, tall) = (LEFT + SIDE + 90, SIDE + 8 + BELOW);
    let table = Table::of(points)
        .text("Limit", |point| {
            html! { (point.limit) @if knees.contains(point) { " (knee)" } @if Some(point.limit) == suggested { " (suggested)" } }
        })
        .number("Ordinary rejected", |point| html! { (percent(point.ordinary, *ordinary)) })
        .number("Ordinary keys", |point| html! { (point.ordinary.keys) " of " (ordinary.keys) })
        .number("Unusual rejected", |point| html! { (percent(point.unusual, *unusual)) })
        .number("Unusual keys", |point| html! { (point.unusual.keys) " of " (unusual.keys) })
        .draw();
    html! {
        figure.frontier {
            figcaption { "Rejected of " (ordinary.requests) " ordinary requests (across) and of " (unusual.requests) " unusual ones (up), by limit" }
            svg viewBox=(format!("0 0 {wide} {tall}")) role="img" aria-label="Rejected of ordinary and of unusual requests, as a table below" {
                path.line d=(format!("M{LEFT} 8V{}H{}", SIDE + 8, LEFT + SIDE)) {}
                @for (text, y) in [("100 %", 12), ("50 %", SIDE / 2 + 12), ("0", SIDE + 12)] {
                    text x=(LEFT - 6) y=(y) text-anchor="end" { (text) }
                }
                @for (text, thousandth) in [("0", 0), ("1 %", 100), ("10 %", 316), ("100 %", 1_000)] {
                    text x=(LEFT + SIDE * thousandth / 1_000) y=(SIDE + 26) text-anchor="middle" { (text) }
                }
                path.curve d=(curve) {}
                @for point in points.iter().filter(is_marked) {
                    @let (x, y) = place(point);
                    circle class=(if Some(point.limit) == suggested { "rejected" } else { "allowed" }) cx=(x) cy=(y) r="4" {
                        title { "limit " (point.limit) }
                    }
                    text x=(x + 7) y=(y + 4) { (point.limit) }
                }
            }
            details {
                summary { "All limits as a table" }
                (table)
            }
        }
    }
}

/// The whole, in the parts that [`Counted::part`] counts in.
const WHOLE: u64 = 1_000_000_000;
