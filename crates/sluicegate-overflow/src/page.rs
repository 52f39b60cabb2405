//! The page of a visitor that waits: [`page`]. The server draws it; it refreshes itself and needs no scripts.
//!
//! It has one heading, the place, the longest wait and one sentence. Waits are rounded up: to seconds below a minute and a half, to minutes
//! below an hour and a half, and above that to hours and minutes.

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use sluicegate_core::support::ceil_seconds;
use sluicegate_plots::{grouped, part};

use crate::reply::{Reason, Reply};

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub(crate) fn page(reply: &Reply<'_>) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                meta name="color-scheme" content="light dark";
                meta http-equiv="refresh" content=(reply.refresh_seconds());
                title { (title(reply)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (heading(reply.reason())) }
                    (standing(reply))
                    p { (reply.reason().sentence()) }
                    @if let Some(lost) = reply.lost() { p.lost role="status" { (lost) } }
                    p.note {
                        "This page looks again by itself in " (seconds(reply.refresh_seconds()))
                        ". Leave it open; to reload it makes nothing faster."
                    }
                }
            }
        }
    }
    .into_string()
}

/// The title that a tab shows.
fn title(reply: &Reply<'_>) -> String {
    match (reply.position(), reply.reason()) {
        (Some(position), Reason::Waiting) => format!("{} – waiting room", grouped(position)),
        _ => "Waiting room".to_owned(),
    }
}

fn heading(reason: Reason) -> &'static str {
    match reason {
        Reason::Waiting => "You are in line",
        Reason::NotOpen => "Not open yet",
        Reason::Paused => "Paused",
        Reason::Full => "The waiting room is full",
        Reason::TooMany => "No more places",
        Reason::EnterFirst | Reason::Away => "One moment, please",
    }
}

fn standing(reply: &Reply<'_>) -> Markup {
    html! {
        @if let Some(opens) = reply.opens_after() {
            p.number { span.what { "Opens in" } strong { (span(opens)) } }
        } @else {
            @if let Some(position) = reply.position() {
                p.number { span.what { "Your place" } strong { (grouped(position)) } }
            }
            @if let Some(wait) = reply.wait() {
                p.number { span.what { "Your turn within" } strong { (span(wait)) } }
                @if let Some(waited) = reply.waited.filter(|waited| !waited.is_zero()) { (progress(waited, wait)) }
            }
        }
    }
}

/// The part of the whole wait that is over.
fn progress(waited: Duration, wait: Duration) -> Markup {
    let seconds = |span: Duration| span.as_secs();
    html! {
        p.what { "You have waited for " (span(waited)) "." }
        (PreEscaped(part(seconds(waited), seconds(waited.saturating_add(wait)), "allowed")))
    }
}

/// Writes `4 minutes`.
fn span(wait: Duration) -> String {
    let all = ceil_seconds(wait).max(1);
    match all {
        0..=90 => seconds(all),
        91..=5_400 => format!("{} minutes", all.div_ceil(60)),
        _ => format!("{} h {} min", all / 3_600, all % 3_600 / 60),
    }
}

fn seconds(all: u64) -> String {
    format!("{all} second{}", if all == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{LinePlace, LineStanding};

    #[test]
    fn numbers_read_as_people_write_them() {
        let spans =
            [0, 1_000, 90_000, 91_000, 3_599_000, 7_260_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(spans, ["1 second", "1 second", "90 seconds", "2 minutes", "60 minutes", "2 h 1 min"]);
    }

    #[test]
    fn a_visitor_sees_the_part_of_its_wait_that_is_over() {
        let mut standing = LineStanding::new(LinePlace::new(4, 0), Duration::from_secs(5));
        (standing.position, standing.wait) = (Some(4), Some(Duration::from_secs(90)));
        let reply = Reply::waiting("sale", standing, None);
        assert!(!page(&reply).contains("<svg"), "it has just come");
        let text = page(&reply.after(Some(Duration::from_secs(30))));
        assert!(
            text.contains("You have waited for 30 seconds.")
                && text.contains("class=\"allowed\" width=\"25\""),
            "{text}"
        );
    }

    #[test]
    fn the_name_of_a_room_stays_out_of_the_markup_and_the_page_has_no_script() {
        let text = page(&Reply::new("sale", Reason::Full));
        assert!(text.contains("<h1>The waiting room is full</h1>") && !text.contains("<script"), "{text}");
    }
}
