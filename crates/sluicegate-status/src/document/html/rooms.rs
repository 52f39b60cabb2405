//! Waiting rooms and limits on requests at once: a row each. A section without rows is left out.

use maud::{Markup, PreEscaped, html};
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::support::ceil_millis;
use sluicegate_in_flight::{AdaptiveMoment, AdaptiveStatus, SharedStatus};
use sluicegate_observed::InFlightSnapshot;
use sluicegate_plots::{Bars, Table};

use crate::document::html::parts::{field, hidden};
use crate::document::html::policies;
use crate::document::{NamedLimit, RoomShown, shape};

pub(super) fn rooms_section(rooms: &[RoomShown], token: Option<&str>) -> Markup {
    Table::of(rooms)
        .text("room", |room| html! { (room.name) })
        .text("rate", |room| {
            let mode = Some(room.mode).filter(|mode| *mode != "metered");
            html! { span { (room.rate) @if let Some(mode) = mode { " " span.mode { "(" (mode) ")" } } } }
        })
        .number("visitors waiting", |room| html! { (shape::count(room.waiting)) })
        // The wait is unknown while the room is paused.
        .number(
            "wait of the last",
            |room| html! { (room.wait_seconds.map_or_else(|| "not known".to_owned(), shape::wait)) },
        )
        .number(
            "visitors inside",
            |room| html! { (room.active.map_or_else(|| "not counted".to_owned(), shape::count)) },
        )
        .number("let in so far", |room| html! { (shape::count(room.admitted)) })
        .number("places passed over", |room| html! { (shape::count(room.passed_over)) })
        .forms("change", token, |room, token| change(room, token))
        .section("rooms", "Waiting rooms")
}

/// Forms that open without a script: the rate, a pause or its end, and the opening to all, which has to be confirmed.
fn change(room: &RoomShown, token: &str) -> Markup {
    let RoomShown { name, rate, mode, .. } = room;
    let common = html! {
        (hidden("token", token))
        (hidden("do", "change-room"))
        (hidden("room", name))
        (hidden("seen", &room.seen))
    };
    html! {
        details {
            summary aria-label={ "change the room " (name) } { "change" }
            form method="post" {
                (common)
                (field(&format!("rate-of-{name}"), "rate", "rate", rate))
                div.buttons { button aria-label={ "set the rate of " (name) } { "set rate" } }
            }
            form method="post" {
                (common)
                div.buttons {
                    @if *mode != "paused" {
                        button name="mode" value="paused" aria-label={ "pause " (name) } { "pause" }
                    }
                    @if *mode != "metered" {
                        button name="mode" value="metered" aria-label={ "let in by the rate: " (name) } { "let in by the rate" }
                    }
                }
            }
            @if *mode != "open" {
                form method="post" {
                    (common)
                    p {
                        input id={ "open-" (name) } type="checkbox" name="confirm" value="yes" required;
                        " " label for={ "open-" (name) } { "I mean all who wait, at once" }
                    }
                    div.buttons {
                        button name="mode" value="open" aria-label={ "open " (name) " to all" } { "open to all" }
                    }
                }
            }
        }
    }
}

/// The limits on requests at once.
pub(super) fn at_once_section(limits: &[InFlightSnapshot]) -> Markup {
    Table::of(limits)
        .text("limit", |limit| {
            html! { (limit.name) " " small { (shape::counted(limit.permits, "permit", "permits")) } }
        })
        .number("under way", |limit| html! { (shape::count(limit.in_use)) })
        .number("let in per second", |limit| html! { (shape::rate(limit.per_second.allowed)) })
        .number("refused per second", |limit| html! { (shape::rate(limit.per_second.rejected)) })
        .plots("last hour", |InFlightSnapshot { name, minutes, minute, .. }| {
            let hour: Vec<_> = minutes.iter().skip(1).chain([minute]).collect();
            policies::bars(name, false, &hour)
        })
        .section("at-once", "Requests at once")
}

/// The limits that adapt. A limit in shadow mode says that it would have shed requests, because none was refused.
pub(super) fn adaptive_section(limits: &[NamedLimit<AdaptiveStatus>]) -> Markup {
    Table::of(limits)
        .text("limit", |NamedLimit { name, status }| {
            let AdaptiveStatus { algorithm, mode, bounds, .. } = status;
            html! {
                (name)
                " " small { (algorithm) ", " (shape::count(bounds.at_least)) " to " (shape::count(bounds.at_most)) }
                @if *mode != PolicyMode::Enforce { " " span.mode { "(" (mode) ")" } }
            }
        })
        .number("requests under way", |NamedLimit { status, .. }| {
            html! { (shape::count(status.in_flight)) " of " (shape::count(status.limit)) }
        })
        .number("median latency", |limit| html! { (shape::millis_of(limit.status.latency)) })
        .number("requests waiting", |limit| html! { (shape::count(limit.status.waiting.iter().sum::<usize>())) })
        .number("critical refused", |limit| shed(&limit.status, [0, 1]))
        .number("sheddable refused", |limit| shed(&limit.status, [2, 3]))
        .plots("last hour", |limit| bars(limit))
        .section("adaptive", "Limits that adapt")
}

/// The refusals of two classes.
fn shed(status: &AdaptiveStatus, classes: [usize; 2]) -> Markup {
    let [shed, would] =
        [&status.shed, &status.would_shed].map(|all| classes.map(|class| all[class]).iter().sum::<u64>());
    html! {
        (shape::count(shed))
        @if would > 0 { " " small { (shape::count(would)) " if it were enforced" } }
    }
}

/// Minutes of a bar.
const STEP: usize = 2;

/// The limit and the latency that it follows, over the hour: thirty bars of two minutes, each with a scale of its own.
fn bars(NamedLimit { name, status }: &NamedLimit<AdaptiveStatus>) -> Markup {
    let minutes = status.minutes();
    let steps = || minutes.chunks(STEP).map(|step| step.iter().flatten().next_back());
    let ago = |step: usize| format!("{} min ago", minutes.len() - step * STEP);
    let plot = |what: &str, unit: &'static str, layer: &'static str, number: fn(&AdaptiveMoment) -> u64| {
        Bars::new(format!("{what} of {name}"))
            .caption("at the end of two minutes")
            .at((0..steps().count()).map(ago))
            .marks([format!("{} min ago", minutes.len()), "now".to_owned()])
            .unit(unit)
            .layer(layer, "allowed", steps().map(|moment| moment.map(number)))
            .draw()
    };
    let at_once = plot("requests at once", "", "at once", |moment| moment.limit);
    let latency = plot("latency", " ms", "median", |moment| ceil_millis(moment.latency));
    PreEscaped(at_once + &latency)
}

/// The limits in flight whose permits instances share.
pub(super) fn shared_section(limits: &[NamedLimit<SharedStatus>]) -> Markup {
    Table::of(limits)
        .text("limit", |NamedLimit { name, status }| {
            html! { (name) " " small { (shape::count(status.permits)) " for each key" } }
        })
        .number("under way here", |NamedLimit { status, .. }| {
            html! {
                span { (shape::count(status.in_use)) @if status.keys > 1 { " for " (shape::count(status.keys)) " keys" } }
            }
        })
        .meaning("Requests that this instance serves now, each with a permit.")
        .number("on all instances", |NamedLimit { status, .. }| {
            html! {
                span {
                    @if status.in_use == 0 { "not known here" }
                    @else {
                        (shape::count(status.held)) " of " (shape::count(status.permits))
                        " on " (shape::counted(status.instances, "instance", "instances"))
                    }
                }
            }
        })
        .meaning(
            "Permits that are out on all instances, of the key that has the fewest left among those that are served here, and how many instances hold them.",
        )
        .number("waiting here", |limit| html! { (shape::count(limit.status.waiting)) })
        .meaning("Requests that wait on this instance for a permit that comes back.")
        .text("heartbeat", |limit| heartbeat(&limit.status))
        .meaning(
            "When the store last answered this instance. The permits of an instance that it does not hear of for that long go to others. Without a request under way there is nothing to tell.",
        )
        .number("lost permits", |limit| html! { (shape::count(limit.status.lost)) })
        .meaning(
            "Permits that went to others while their requests were still under way here, because the store had not heard of this instance in time.",
        )
        .section("shared", "Requests at once on all instances")
}

/// Says when the store last heard of this instance.
fn heartbeat(status: &SharedStatus) -> Markup {
    html! {
        @match status.answered {
            _ if status.is_down => { span.over { "the store does not answer" } },
            None => { "not asked yet" },
            Some(ago) => { (shape::wait(ago.as_secs())) " ago, due in each " (shape::wait(status.lease.as_secs())) },
        }
    }
}
