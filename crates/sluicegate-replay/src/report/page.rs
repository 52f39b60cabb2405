//! The outcome as one page, and as a picture: no script, no other file, no network.
//!
//! Both are drawn by the same code, as SVG made of whole numbers: no script, no font and no image is loaded, and the same outcome is the
//! same text each time, so that a picture in a repository changes only with its figures.
//!
//! Texts of a log are escaped where they are put in: the macro does so with every value, and the two exceptions are constants of this
//! crate. Tables carry the heads of their columns at each cell, so that a narrow screen can show rows as lists.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sluicegate_plots::{Bars, Table, outlines};

use crate::judge::{Compared, MINUTE_US, RuleFigures, RuleMinute};
use crate::outcome::ReplayOutcome;
use crate::read::time::shown;
use crate::replay::WithinSecond;
use crate::report::table::{counted, not_learned, unusual, wait};
use crate::report::{quota, quotas, table};

const STYLE: &str = include_str!("style.css");

/// The content security policy: nothing is loaded and nothing runs, whatever a log holds.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl ReplayOutcome {
    /// Writes the whole outcome as one HTML page, which needs no other file and no script. Texts of the log appear as plain text.
    ///
    /// It may be sent by mail or kept with a build: it loads nothing, runs nothing, reads well at 390 px and in the dark, and forbids a
    /// browser to do otherwise by its `Content-Security-Policy`. Its size grows with the rules, not with the lines.
    pub fn to_html(&self) -> String {
        let title = format!("Replay of {}", self.logs.join(", "));
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (title) }
                    style { (PreEscaped(STYLE)) (PreEscaped(sluicegate_plots::STYLE)) }
                }
                body {
                    header { h1 { (title) } }
                    main {
                        (self.summary())
                        @for (number, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.asked > 0) {
                            (self.rule(number, rule))
                        }
                        (self.not_understood())
                    }
                }
            }
        }
        .into_string()
    }

    fn summary(&self) -> Markup {
        let remarks = self.remarks();
        let shown = remarks.len() - self.lines.shown.len();
        let table = Table::of(self.rules.iter().enumerate())
            .text("Rule, policy", |(number, rule)| {
                html! { a href=(format!("#rule-{number}")) { (rule.name) } small { (rule.policy.name()) ": " (quota(rule)) } }
            })
            .number("Asked", |(_, rule)| html! { (rule.asked) })
            .number("Rejected", |(_, rule)| html! { (rule.rejected) small { (self.otherwise(rule)) } })
            .number("Keys", |(_, rule)| html! { (rule.keys) })
            .number("Rejected keys", |(_, rule)| html! { (rule.rejected_keys) })
            .text("Worst minute", |(_, rule)| html! { (worst(rule)) })
            .number("Waits", |(_, rule)| html! { (waits(rule)) })
            .text("Suggestion", |(_, rule)| {
                html! { @match &rule.suggestion { Some(found) => (quotas(&found.policy)), None => "-" } }
            })
            .draw();
        html! {
            section {
                p.sentence { (self.sentence()) }
                @if !self.unusual.is_empty() {
                    h2 { "Unusual in this log" }
                    ul.remarks { @for found in &self.unusual { li { (unusual(found)) } } }
                }
                ul.remarks { @for remark in &remarks[..shown] { li { (remark) } } }
                (table)
            }
        }
    }

    fn rule(&self, number: usize, rule: &RuleFigures) -> Markup {
        html! {
            section id=(format!("rule-{number}")) {
                h2 { (rule.name) " " small { (rule.policy.name()) ": " (quota(rule)) ", " (rule.policy.algorithm()) } }
                (over_time(&rule.minutes, "Requests over time"))
                @if let Some(worst) = rule.worst {
                    details {
                        summary { "The hour around the worst minute" }
                        (over_time(&around(&rule.minutes, worst.at_us), "Requests around the worst minute"))
                    }
                }
                h3 { "Requests per key and minute" }
                (per_minute(rule))
                @if !rule.compared.is_empty() { (compared(rule)) }
                @if let Some(found) = &rule.suggestion { (suggestion(found, self.unusual_span().as_deref())) }
                @if let Some(why) = rule.no_suggestion { p { "No suggestion: " (why) "." } }
                @if let Some(found) = &rule.frontier { (table::figure(rule, found)) }
                @if !rule.top.is_empty() { (offenders(rule)) }
            }
        }
    }

    /// The number of rejections with whole seconds taken the other way, if the log has such.
    fn otherwise(&self, rule: &RuleFigures) -> String {
        let came = match self.within_second {
            WithinSecond::Spread => "at once",
            WithinSecond::Together => "evenly",
        };
        let told = |rejected| format!("{rejected} if the requests of a second came {came}");
        rule.rejected_otherwise.map(told).unwrap_or_default()
    }

    /// The outcome in one sentence.
    fn sentence(&self) -> String {
        let of_rules = || self.rules.iter().filter(|rule| rule.group.is_none());
        let worst = of_rules().filter(|rule| rule.rejected > 0).max_by_key(|rule| rule.rejected);
        let refused = match worst {
            None => "No rule rejects a request".to_owned(),
            Some(rule) => format!(
                "{} rejects {} of {}, of {} of {}",
                rule.name,
                rule.rejected,
                counted(rule.asked, "request"),
                rule.rejected_keys,
                counted(rule.keys, "key")
            ),
        };
        let others = of_rules().filter(|rule| rule.rejected > 0).count().saturating_sub(1) as u64;
        let others = match others {
            0 => String::new(),
            others => format!("; {} more reject some", counted(others, "rule")),
        };
        match self.unusual.len() {
            0 => format!("{refused}{others}; nothing in the log is unusual."),
            1 => format!("{refused}{others}; a part of the log is unusual."),
            parts => format!("{refused}{others}; {parts} parts of the log are unusual."),
        }
    }

    fn not_understood(&self) -> Markup {
        let title = format!("Not understood: {}", counted(self.lines.not_understood, "line"));
        Table::of(&self.lines.shown)
            .text("Line", |line| html! { (self.place(line)) })
            .text("Why", |line| html! { (line.reason) })
            .text(
                "It begins",
                |line| html! { @match &line.begins { Some(line) => { code { (line) } }, None => "-" } },
            )
            .section("not-understood", &title)
    }
}

fn waits(rule: &RuleFigures) -> String {
    match rule.longest_wait {
        None => "-".to_owned(),
        longest => format!("{} to {}", wait(rule.shortest_wait), wait(longest)),
    }
}

fn worst(rule: &RuleFigures) -> String {
    rule.worst.map_or_else(
        || "-".to_owned(),
        |worst| format!("{} ({} rejected)", shown(worst.at_us, false), worst.per_minute),
    )
}

/// The minutes within half an hour before and after a moment.
///
/// Over days a bar covers many minutes; here each minute has one, so that a burst keeps its shape.
fn around(minutes: &[RuleMinute], at_us: u64) -> Vec<RuleMinute> {
    let near = |minute: &&RuleMinute| minute.at_us.abs_diff(at_us) <= 30 * MINUTE_US;
    minutes.iter().filter(near).copied().collect()
}

/// The requests of a key in a minute, and those that the limit has room for on average.
fn per_minute(rule: &RuleFigures) -> Markup {
    let rows = marks(rule);
    let largest = rows.iter().map(|(_, at)| *at).max().unwrap_or(0);
    Table::of(rows)
        .text("Minutes in which a key came", |(name, _)| html! { (name) })
        .number("Requests at most", |(_, at)| html! { (at) })
        .text("", |(name, at)| part(*at, largest, if *name == LIMIT { "rejected" } else { "allowed" }))
        .draw()
}

/// The name of the row of the limit.
const LIMIT: &str = "the limit, on average";

/// How often keys come, and how often they may come on average.
fn marks(rule: &RuleFigures) -> Vec<(&'static str, u64)> {
    let per = &rule.per_minute;
    let mut marks =
        vec![("half of them", per.p50), ("9 of 10", per.p90), ("99 of 100", per.p99), ("all", per.max)];
    if let Some(quota) = rule.policy.quotas().first().map(|quota| quota.quota()) {
        let per_minute =
            u128::from(quota.limit()) * u128::from(MINUTE_US) / quota.period().as_micros().max(1);
        marks.push((LIMIT, u64::try_from(per_minute).unwrap_or(u64::MAX / 1_000)));
    }
    marks
}

fn compared(rule: &RuleFigures) -> Markup {
    let largest = rule.compared.iter().filter_map(|compared| compared.rejected.as_ref().ok()).max();
    let table = Table::of(&rule.compared)
        .text("Algorithm", |compared| {
            html! { (compared.algorithm) @if compared.drops_burst { small { "without the burst, which it does not know" } } }
        })
        .number("Rejected", |compared| html! { @match &compared.rejected { Ok(rejected) => (rejected), Err(_) => "-" } })
        .text("", |compared| match &compared.rejected {
            Ok(rejected) => part(*rejected, largest.copied().unwrap_or(0), "rejected"),
            Err(why) => html! { (why) },
        })
        .draw();
    html! {
        h3 { "The same quotas under each algorithm, alone" }
        (table)
    }
}

fn suggestion(found: &crate::Suggestion, span: Option<&str>) -> Markup {
    html! {
        div.found {
            h3 { "Suggestion for at most " (found.share) ": " (quotas(&found.policy)) }
            p { (table::suggestion(found)) "." @if let Some(side) = &found.unusual { " It is " (not_learned(side, span)) "." } }
        }
    }
}

fn offenders(rule: &RuleFigures) -> Markup {
    let table = Table::of(&rule.top)
        .text(
            "Key",
            |key| html! { span.key { (key.key) } @if let Some(own) = &key.quotas { small { (own) } } },
        )
        .number("Asked", |key| html! { (key.asked) })
        .number("Rejected", |key| html! { (key.rejected) })
        .text("Rejected part of its requests", |key| part(key.rejected, key.asked, "rejected"))
        .draw();
    html! {
        h3 { "Keys with the most rejections" }
        (table)
    }
}

// The picture: the drawings of the page alone, for a document.
//
// It has the bars of the rules and the comparison of algorithms, with the colours of both grounds in it, so that the same file serves a
// light and a dark page.

/// The colours of the page, for both kinds of ground.
const PICTURE_STYLE: &str = "text{font:13px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#1b1f24}.quiet{fill:#545d68}\
.allowed{fill:#0b4fb3}.rejected{fill:#a8201a}.ground{fill:#fff}.line{stroke:#868f99}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#a5b1bd}.allowed{fill:#8cbfff}.rejected{fill:#ff9d94}\
.ground{fill:#0f1419}.line{stroke:#6b7683}}";

/// The width of the drawings, in units of the picture.
const WIDTH: u64 = 720;
const MARGIN: u64 = 16;
/// The height of the bars of a rule.
const TALL: u64 = 64;
/// The distance from one line of text to the next.
const LINE: u64 = 20;
/// The place where the bars of a comparison begin.
const COMPARED_AT: u64 = 240;

impl ReplayOutcome {
    /// A picture of all rules, as SVG, for light and dark backgrounds: requests over time, comparisons and suggestions. Texts
    /// appear as plain text, and it loads nothing.
    ///
    /// Use it in a README or a slide instead of the page. A viewer that knows `prefers-color-scheme` shows it light or dark.
    pub fn to_svg(&self) -> String {
        let mut below = MARGIN;
        let mut rules = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.asked > 0) {
            rules.push(html! { g transform=(format!("translate({MARGIN} {below})")) { (self.drawn(rule)) } });
            below += height(rule);
        }
        let (wide, tall) = (WIDTH + 2 * MARGIN, below + LINE);
        let span = self.span.map_or_else(String::new, |(from, to)| {
            format!("{} to {} UTC; clients do not react", shown(from, false), shown(to, false))
        });
        let title = format!("Replay of {}: allowed and rejected requests over time", self.logs.join(", "));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {wide} {tall}")) width=(wide) height=(tall) role="img" aria-label=(title) {
                style { (PreEscaped(PICTURE_STYLE)) }
                rect.ground width=(wide) height=(tall) rx="6" {}
                @for rule in &rules { (rule) }
                text.quiet x=(MARGIN) y=(below + 4) { (span) }
                (legend(below + 4))
            }
        }
        .into_string()
    }

    fn drawn(&self, rule: &RuleFigures) -> Markup {
        let Some(bars) = OverTime::of(&rule.minutes) else { return html! {} };
        let [allowed, rejected] = &bars.outlines((WIDTH, TALL))[..] else { return html! {} };
        let after = TALL + 2 * LINE;
        html! {
            text y="12" { (rule.name) ": " (rule.policy.algorithm()) ", " (quota(rule)) }
            text.quiet x=(WIDTH) y="12" text-anchor="end" {
                (rule.rejected) " of " (counted(rule.asked, "request")) " and " (rule.rejected_keys) " of " (counted(rule.keys, "key")) " rejected"
            }
            g transform=(format!("translate(0 {LINE})")) {
                path.allowed d=(allowed) {}
                path.rejected d=(rejected) {}
                path.line d=(format!("M0 {TALL}H{WIDTH}")) {}
            }
            @if !rule.compared.is_empty() {
                text y=(after) { "requests that each algorithm rejects alone, with the same quotas:" }
            }
            @let after = after + heading(rule);
            @let largest = rule.compared.iter().filter_map(|compared| compared.rejected.as_ref().ok()).max();
            @for (place, compared) in (0_u64..).zip(&rule.compared) {
                g transform=(format!("translate(0 {})", after + place * LINE)) {
                    (compared_bar(compared, largest.copied().unwrap_or(0)))
                }
            }
            @if let Some(found) = &rule.suggestion {
                text y=(after + rule.compared.len() as u64 * LINE) {
                    "suggestion for at most " (found.share) ": " (quotas(&found.policy)) ", which rejects " (counted(found.rejected, "request"))
                }
            }
        }
    }
}

/// The height of the drawing of a rule, with room below.
fn height(rule: &RuleFigures) -> u64 {
    let lines = rule.compared.len() as u64 + u64::from(rule.suggestion.is_some());
    TALL + 2 * LINE + heading(rule) + lines * LINE
}

/// The height of the line above the bars of a comparison.
fn heading(rule: &RuleFigures) -> u64 {
    if rule.compared.is_empty() { 0 } else { LINE }
}

fn compared_bar(compared: &Compared, largest: u64) -> Markup {
    let rejected = compared.rejected.as_ref().copied().unwrap_or(0);
    let width = (rejected * (WIDTH - COMPARED_AT - 60)).checked_div(largest).unwrap_or(0);
    let burst = if compared.drops_burst { ", no burst" } else { "" };
    html! {
        text.quiet { (compared.algorithm) (burst) }
        rect.rejected x=(COMPARED_AT) y="-10" width=(width) height="11" {}
        text.quiet x=(COMPARED_AT + width + 6) { @match &compared.rejected { Ok(rejected) => (rejected), Err(_) => "-" } }
    }
}

fn legend(y: u64) -> Markup {
    html! {
        rect.allowed x=(WIDTH - 132) y=(y - 10) width="11" height="11" {}
        text x=(WIDTH - 116) y=(y) { "allowed" }
        rect.rejected x=(WIDTH - 52) y=(y - 10) width="11" height="11" {}
        text x=(WIDTH - 36) y=(y) { "rejected" }
    }
}

// The bars over time of the page and of the picture: the time that a bar covers, and its counts.
//
// Each bar covers the same round number of minutes, the least that keeps the number of bars at 180 or less and fills three of four
// bars: a quiet site has bars of hours, without gaps between slivers. Bars begin at round times.

/// The most bars that can be told apart at the width of a page.
const BARS: u64 = 180;

/// The minutes that a bar may cover.
const MINUTES: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720, 1_440, 10_080];

/// Requests over time, by bars.
pub(super) struct OverTime {
    allowed: Vec<u64>,
    rejected: Vec<u64>,
    /// The number of minutes that a bar covers.
    minutes: u64,
    /// The beginning of the first bar.
    from_us: u64,
}

impl OverTime {
    /// The bars of these minutes; `None` if there is none.
    pub(super) fn of(minutes: &[RuleMinute]) -> Option<Self> {
        let (first, last) = (minutes.first()?.at_us / MINUTE_US, minutes.last()?.at_us / MINUTE_US);
        let bars_of = |per_bar: u64| last / per_bar - first / per_bar + 1;
        let filled = |per_bar: u64| {
            let same = |one: &RuleMinute, next: &RuleMinute| {
                one.at_us / MINUTE_US / per_bar == next.at_us / MINUTE_US / per_bar
            };
            minutes.chunk_by(same).count() as u64
        };
        let is_enough =
            |per_bar: &u64| bars_of(*per_bar) <= BARS && filled(*per_bar) * 4 >= bars_of(*per_bar) * 3;
        // A log of years has bars of several weeks.
        let longer = || MINUTES[MINUTES.len() - 1] * bars_of(MINUTES[MINUTES.len() - 1]).div_ceil(BARS);
        let per_bar = MINUTES.into_iter().find(is_enough).unwrap_or_else(longer);
        let begin = first / per_bar;
        let bars = usize::try_from(bars_of(per_bar)).unwrap_or_default();
        let (mut allowed, mut rejected) = (vec![0_u64; bars], vec![0_u64; bars]);
        for minute in minutes {
            let Ok(place) = usize::try_from(minute.at_us / MINUTE_US / per_bar - begin) else { continue };
            if place < bars {
                allowed[place] += minute.asked - minute.rejected;
                rejected[place] += minute.rejected;
            }
        }
        Some(Self { allowed, rejected, minutes: per_bar, from_us: begin * per_bar * MINUTE_US })
    }

    /// The outlines of the allowed and of the rejected requests in a drawing of this size.
    fn outlines(&self, size: (u64, u64)) -> Vec<String> {
        outlines(&[self.allowed.clone(), self.rejected.clone()], size)
    }

    /// The height of the highest bar, in words.
    fn scale(&self) -> String {
        let unit = match self.minutes {
            1 => "a minute".to_owned(),
            60 => "an hour".to_owned(),
            1_440 => "a day".to_owned(),
            minutes if minutes % 1_440 == 0 => format!("{} days", minutes / 1_440),
            minutes if minutes % 60 == 0 => format!("{} hours", minutes / 60),
            minutes => format!("{minutes} minutes"),
        };
        let sums = self.allowed.iter().zip(&self.rejected).map(|(allowed, rejected)| allowed + rejected);
        format!("the highest bar is {} in {unit}", counted(sums.max().unwrap_or(0), "request"))
    }

    /// The beginning of a bar.
    fn at(&self, place: u64) -> String {
        shown(self.from_us + place * self.minutes * MINUTE_US, false)
    }
}

/// The bars as a figure of the page, with a scale, times and a table.
fn over_time(minutes: &[RuleMinute], title: &str) -> Markup {
    let Some(found) = OverTime::of(minutes) else { return html! {} };
    let bars = found.allowed.len() as u64;
    let marks = bars.min(4);
    let plot = Bars::new(title)
        .caption(format!("{title}: {}", found.scale()))
        .at((0..bars).map(|place| found.at(place)))
        .marks((0..=marks).map(|mark| found.at(bars * mark / marks.max(1))))
        .layer("allowed", "allowed", found.allowed.iter().copied().map(Some))
        .layer("rejected", "rejected", found.rejected.iter().copied().map(Some));
    PreEscaped(plot.draw())
}

/// A bar as long as its part of the largest one, in the color of what was `rejected` or `allowed`.
pub(super) fn part(count: u64, largest: u64, color: &str) -> Markup {
    PreEscaped(sluicegate_plots::part(count, largest, color))
}
