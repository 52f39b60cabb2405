//! The page.
//!
//! Texts of a log are escaped where they are put in: the macro does so with every value, and the two exceptions are constants of this
//! crate. Tables carry the heads of their columns at each cell, so that a narrow screen can show rows as lists.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::judge::{MINUTE_US, RuleFigures, RuleMinute};
use crate::outcome::ReplayOutcome;
use crate::read::time::shown;
use crate::replay::WithinSecond;
use crate::report::json::{quota, quotas};
use crate::report::table::{counted, not_learned, unusual, wait};
use crate::report::{picture, table};

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
        html! {
            section {
                p.sentence { (self.sentence()) }
                @if !self.unusual.is_empty() {
                    h2 { "Unusual in this log" }
                    ul.remarks { @for found in &self.unusual { li { (unusual(found)) } } }
                }
                ul.remarks { @for remark in &remarks[..shown] { li { (remark) } } }
                table {
                    thead { tr {
                        th { "Rule, policy" } th.number { "Asked" } th.number { "Rejected" } th.number { "Keys" }
                        th.number { "Rejected keys" } th { "Worst minute" } th.number { "Waits" } th { "Suggestion" }
                    } }
                    tbody {
                        @for (number, rule) in self.rules.iter().enumerate() {
                            tr {
                                th { a href=(format!("#rule-{number}")) { (rule.name) } small { (rule.policy.name()) ": " (quota(rule)) } }
                                td.number data-label="Asked" { (rule.asked) }
                                td.number data-label="Rejected" { (rule.rejected) small { (self.otherwise(rule)) } }
                                td.number data-label="Keys" { (rule.keys) }
                                td.number data-label="Rejected keys" { (rule.rejected_keys) }
                                td data-label="Worst minute" { (worst(rule)) }
                                td.number data-label="Waits" { (waits(rule)) }
                                td data-label="Suggestion" {
                                    @match &rule.suggestion {
                                        Some(found) => { (quotas(&found.policy)) },
                                        None => "-",
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn rule(&self, number: usize, rule: &RuleFigures) -> Markup {
        html! {
            section id=(format!("rule-{number}")) {
                h2 { (rule.name) " " small { (rule.policy.name()) ": " (quota(rule)) ", " (rule.policy.algorithm()) } }
                (picture::over_time(&rule.minutes, "Requests over time"))
                @if let Some(worst) = rule.worst {
                    details {
                        summary { "The hour around the worst minute" }
                        (picture::over_time(&around(&rule.minutes, worst.at_us), "Requests around the worst minute"))
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
        html! {
            @if self.lines.not_understood > 0 {
                section {
                    h2 { "Not understood: " (counted(self.lines.not_understood, "line")) }
                    table {
                        thead { tr { th { "Line" } th { "Why" } th { "It begins" } } }
                        tbody {
                            @for line in &self.lines.shown {
                                tr {
                                    th { (self.place(line)) }
                                    td data-label="Why" { (line.reason) }
                                    td data-label="It begins" { @match &line.begins { Some(line) => { code { (line) } }, None => "-" } }
                                }
                            }
                        }
                    }
                }
            }
        }
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
    html! {
        table.marks {
            thead { tr { th { "Minutes in which a key came" } th.number { "Requests at most" } th { } } }
            tbody {
                @for (name, at) in rows {
                    tr {
                        th { (name) }
                        td.number data-label="Requests at most" { (at) }
                        td { (picture::part(at, largest, if name == LIMIT { "rejected" } else { "allowed" })) }
                    }
                }
            }
        }
    }
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
    html! {
        h3 { "The same quotas under each algorithm, alone" }
        table {
            thead { tr { th { "Algorithm" } th.number { "Rejected" } th { } } }
            tbody {
                @for compared in &rule.compared {
                    tr {
                        th { (compared.algorithm) @if compared.drops_burst { small { "without the burst, which it does not know" } } }
                        @match &compared.rejected {
                            Ok(rejected) => {
                                td.number data-label="Rejected" { (rejected) }
                                td { (picture::part(*rejected, largest.copied().unwrap_or(0), "rejected")) }
                            }
                            Err(why) => { td.number data-label="Rejected" { "-" } td { (why) } }
                        }
                    }
                }
            }
        }
    }
}

fn suggestion(found: &crate::Suggestion, span: Option<&str>) -> Markup {
    html! {
        div.found {
            h3 { "Suggestion for at most " (found.share) ": " (quotas(&found.policy)) }
            p {
                "Alone it rejects " b { (counted(found.rejected, "request")) }
                @if found.uncertainty > 0 { " (give or take " (found.uncertainty) ")" }
                " of " b { (counted(found.rejected_keys, "key")) } "; no higher limit rejects more than the share. "
                @if let Some(together) = found.together { "Beside the other suggestions it rejects " b { (together) } ". " }
                @if found.step > 1 { "Limits were looked at in steps of " (found.step) "." }
                @if let Some(side) = &found.unusual { "It is " (not_learned(side, span)) "." }
            }
        }
    }
}

fn offenders(rule: &RuleFigures) -> Markup {
    html! {
        h3 { "Keys with the most rejections" }
        table {
            thead { tr { th { "Key" } th.number { "Asked" } th.number { "Rejected" } th { "Rejected part of its requests" } } }
            tbody {
                @for key in &rule.top {
                    tr {
                        th.key { (key.key) @if let Some(own) = &key.quotas { small { (own) } } }
                        td.number data-label="Asked" { (key.asked) }
                        td.number data-label="Rejected" { (key.rejected) }
                        td { (picture::part(key.rejected, key.asked, "rejected")) }
                    }
                }
            }
        }
    }
}
