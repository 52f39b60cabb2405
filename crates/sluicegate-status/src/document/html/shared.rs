//! The limits in flight whose permits instances share, a row each. Without any, the section is left out.

use maud::{Markup, html};

use super::columns::explained;
use crate::document::{SharedShown, number};

const HERE: &str = "under way here";
const IN_ALL: &str = "on all instances";
const WAITING: &str = "waiting here";
const HEARTBEAT: &str = "heartbeat";
const LOST: &str = "lost permits";

/// The columns and their meanings.
const COLUMNS: &[(&str, &str)] = &[
    (HERE, "Requests that this instance serves now, each with a permit."),
    (
        IN_ALL,
        "Permits that are out on all instances, of the key that has the fewest left among those that are served here, and how many instances hold them.",
    ),
    (WAITING, "Requests that wait on this instance for a permit that comes back."),
    (
        HEARTBEAT,
        "When the store last answered this instance. The permits of an instance that it does not hear of for that long go to others. Without a request under way there is nothing to tell.",
    ),
    (
        LOST,
        "Permits that went to others while their requests were still under way here, because the store had not heard of this instance in time.",
    ),
];

pub(super) fn section(limits: &[SharedShown]) -> Markup {
    html! {
        @if !limits.is_empty() {
            section aria-labelledby="shared" {
                h2 #shared { "Requests at once on all instances" }
                table {
                    thead {
                        tr {
                            th scope="col" { "limit" }
                            th.number scope="col" { (HERE) }
                            th.number scope="col" { (IN_ALL) }
                            th.number scope="col" { (WAITING) }
                            th scope="col" { (HEARTBEAT) }
                            th.number scope="col" { (LOST) }
                        }
                    }
                    tbody {
                        @for limit in limits { (row(limit)) }
                    }
                }
                (explained(COLUMNS))
            }
        }
    }
}

fn row(limit: &SharedShown) -> Markup {
    html! {
        tr {
            th scope="row" { (limit.name) " " small { (number::count(limit.permits)) " for each key" } }
            td.number data-label=(HERE) {
                span { (number::count(limit.in_use)) @if limit.keys > 1 { " for " (number::count(limit.keys)) " keys" } }
            }
            td.number data-label=(IN_ALL) {
                span {
                    @if limit.in_use == 0 { "not known here" }
                    @else {
                        (number::count(limit.held)) " of " (number::count(limit.permits))
                        " on " (number::counted(limit.instances, "instance", "instances"))
                    }
                }
            }
            td.number data-label=(WAITING) { (number::count(limit.waiting)) }
            td data-label=(HEARTBEAT) { (heartbeat(limit)) }
            td.number data-label=(LOST) { (number::count(limit.lost)) }
        }
    }
}

/// Says when the store last heard of this instance.
fn heartbeat(limit: &SharedShown) -> Markup {
    html! {
        @match (limit.store, limit.answered_seconds) {
            ("down", _) => { span.over { "the store does not answer" } },
            (_, None) => { "not asked yet" },
            (_, Some(ago)) => { (number::wait(ago)) " ago, due in each " (number::wait(limit.lease_seconds)) },
        }
    }
}
