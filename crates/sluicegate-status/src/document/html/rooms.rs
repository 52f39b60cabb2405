//! The waiting rooms, a row each. Without any, the section is left out.

use maud::{Markup, PreEscaped, html};
use sluicegate_core::store::BreakerState;
use sluicegate_observed::{InFlightSnapshot, StoreSnapshot, StoreState};
use sluicegate_plots::Bars;

use crate::document::html::look_up::{field, hidden};
use crate::document::html::{explained, look_up, policies};
use crate::document::{
    AdaptiveShown, AskerShown, ByClass, OffenderShown, PolicyStatus, RoomShown, SharedShown, shape,
};

pub(super) fn rooms_section(rooms: &[RoomShown], token: Option<&str>) -> Markup {
    html! {
        @if !rooms.is_empty() {
            section aria-labelledby="rooms" {
                h2 #rooms { "Waiting rooms" }
                table {
                    thead {
                        tr {
                            th scope="col" { "room" }
                            th scope="col" { "rate" }
                            th.number scope="col" { "visitors waiting" }
                            th.number scope="col" { "wait of the last" }
                            th.number scope="col" { "visitors inside" }
                            th.number scope="col" { "let in so far" }
                            th.number scope="col" { "places passed over" }
                            @if token.is_some() { th scope="col" { "change" } }
                        }
                    }
                    tbody {
                        @for room in rooms { (room_row(room, token)) }
                    }
                }
            }
        }
    }
}

fn room_row(room: &RoomShown, token: Option<&str>) -> Markup {
    html! {
        tr {
            th scope="row" { (room.name) }
            td data-label="rate" {
                span {
                    (room.rate)
                    @match room.mode {
                        "metered" => {},
                        mode => { " " span.mode { "(" (mode) ")" } },
                    }
                }
            }
            td.number data-label="visitors waiting" { (shape::count(room.waiting)) }
            td.number data-label="wait of the last" {
                // The wait is unknown while the room is paused.
                @match room.wait_seconds { Some(wait) => { (shape::wait(wait)) }, None => { "not known" } }
            }
            td.number data-label="visitors inside" {
                @match room.active { Some(active) => { (shape::count(active)) }, None => { "not counted" } }
            }
            td.number data-label="let in so far" { (shape::count(room.admitted)) }
            td.number data-label="places passed over" { (shape::count(room.passed_over)) }
            @if let Some(token) = token { td.change { (change(room, token)) } }
        }
    }
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

// The limits on requests at once, a row each. Without any, the section is left out.

pub(super) fn at_once_section(limits: &[InFlightSnapshot]) -> Markup {
    html! {
        @if !limits.is_empty() {
            section aria-labelledby="at-once" {
                h2 #at-once { "Requests at once" }
                table {
                    thead {
                        tr {
                            th scope="col" { "limit" }
                            th.number scope="col" { "under way" }
                            th.number scope="col" { "let in per second" }
                            th.number scope="col" { "refused per second" }
                            th scope="col" { "last hour" }
                        }
                    }
                    tbody {
                        @for limit in limits { (at_once_row(limit)) }
                    }
                }
            }
        }
    }
}

fn at_once_row(limit: &InFlightSnapshot) -> Markup {
    let InFlightSnapshot { name, permits, in_use, per_second, minutes, minute, .. } = limit;
    let hour: Vec<_> = minutes.iter().skip(1).chain([minute]).collect();
    html! {
        tr {
            th scope="row" { (name) " " small { (shape::counted(*permits, "permit", "permits")) } }
            td.number data-label="under way" { (shape::count(in_use)) }
            td.number data-label="let in per second" { (shape::rate(per_second.allowed)) }
            td.number data-label="refused per second" { (shape::rate(per_second.rejected)) }
            td.plots data-label="last hour" { (policies::bars(name, false, &hour)) }
        }
    }
}

// The limits that adapt, a row each. Without any, the section is left out.
//
// The last hour is thirty bars of two minutes, for the limit and for the latency that it follows, each with a scale of its own. A limit in
// shadow mode says that it would have shed requests, because none was refused.

/// Minutes of a bar.
const STEP: usize = 2;

pub(super) fn adaptive_section(limits: &[AdaptiveShown]) -> Markup {
    html! {
        @if !limits.is_empty() {
            section aria-labelledby="adaptive" {
                h2 #adaptive { "Limits that adapt" }
                table {
                    thead {
                        tr {
                            th scope="col" { "limit" }
                            th.number scope="col" { "requests under way" }
                            th.number scope="col" { "median latency" }
                            th.number scope="col" { "requests waiting" }
                            th.number scope="col" { "critical refused" }
                            th.number scope="col" { "sheddable refused" }
                            th scope="col" { "last hour" }
                        }
                    }
                    tbody {
                        @for limit in limits { (adaptive_row(limit)) }
                    }
                }
            }
        }
    }
}

fn adaptive_row(limit: &AdaptiveShown) -> Markup {
    let AdaptiveShown { name, algorithm, mode, at_least, at_most, waiting, .. } = limit;
    let all = waiting.critical_plus + waiting.critical + waiting.sheddable_plus + waiting.sheddable;
    html! {
        tr {
            th scope="row" {
                (name)
                " " small { (algorithm) ", " (shape::count(at_least)) " to " (shape::count(at_most)) }
                @if mode != "enforce" { " " span.mode { "(" (mode) ")" } }
            }
            td.number data-label="requests under way" { (shape::count(limit.in_flight)) " of " (shape::count(limit.limit)) }
            td.number data-label="median latency" { (shape::millis(limit.latency_ms)) }
            td.number data-label="requests waiting" { (shape::count(all)) }
            td.number data-label="critical refused" { (shed(limit, |by| by.critical_plus + by.critical)) }
            td.number data-label="sheddable refused" { (shed(limit, |by| by.sheddable_plus + by.sheddable)) }
            td.plots data-label="last hour" { (bars(limit)) }
        }
    }
}

fn shed(limit: &AdaptiveShown, of: fn(&ByClass) -> u64) -> Markup {
    let (shed, would) = (of(&limit.shed), of(&limit.would_shed));
    html! {
        (shape::count(shed))
        @if would > 0 { " " small { (shape::count(would)) " if it were enforced" } }
    }
}

/// The limit and the latency, over the hour.
fn bars(limit: &AdaptiveShown) -> Markup {
    let minutes = limit.minutes.len();
    let steps = || limit.minutes.chunks(STEP).map(|part| part.iter().flatten().next_back());
    let ago = |place: usize| format!("{} min ago", minutes - place * STEP);
    let plot = |what: &str, caption: &str| {
        Bars::new(format!("{what} of {}", limit.name))
            .caption(caption)
            .at((0..steps().count()).map(ago))
            .marks([format!("{minutes} min ago"), "now".to_owned()])
    };
    let at_once = plot("requests at once", "at the end of two minutes").layer(
        "at once",
        "allowed",
        steps().map(|standing| standing.map(|standing| standing.limit)),
    );
    let latency = plot("latency", "at the end of two minutes").unit(" ms").layer(
        "median",
        "allowed",
        steps().map(|standing| standing.map(|standing| whole(standing.latency_ms))),
    );
    PreEscaped(at_once.draw() + &latency.draw())
}

/// Whole milliseconds, at least one unless the time is zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number to look at, and never below zero"
)]
fn whole(millis: f64) -> u64 {
    millis.ceil() as u64
}

// The limits in flight whose permits instances share, a row each. Without any, the section is left out.

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

pub(super) fn shared_section(limits: &[SharedShown]) -> Markup {
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
                        @for limit in limits { (shared_row(limit)) }
                    }
                }
                (explained(COLUMNS))
            }
        }
    }
}

fn shared_row(limit: &SharedShown) -> Markup {
    html! {
        tr {
            th scope="row" { (limit.name) " " small { (shape::count(limit.permits)) " for each key" } }
            td.number data-label=(HERE) {
                span { (shape::count(limit.in_use)) @if limit.keys > 1 { " for " (shape::count(limit.keys)) " keys" } }
            }
            td.number data-label=(IN_ALL) {
                span {
                    @if limit.in_use == 0 { "not known here" }
                    @else {
                        (shape::count(limit.held)) " of " (shape::count(limit.permits))
                        " on " (shape::counted(limit.instances, "instance", "instances"))
                    }
                }
            }
            td.number data-label=(WAITING) { (shape::count(limit.waiting)) }
            td data-label=(HEARTBEAT) { (heartbeat(limit)) }
            td.number data-label=(LOST) { (shape::count(limit.lost)) }
        }
    }
}

/// Says when the store last heard of this instance.
fn heartbeat(limit: &SharedShown) -> Markup {
    html! {
        @match (limit.store, limit.answered_seconds) {
            ("down", _) => { span.over { "the store does not answer" } },
            (_, None) => { "not asked yet" },
            (_, Some(ago)) => { (shape::wait(ago)) " ago, due in each " (shape::wait(limit.lease_seconds)) },
        }
    }
}

// The state of the stores: a summary at the head of the page, and the details below.

pub(super) fn stores_section(stores: &[StoreSnapshot]) -> Markup {
    html! {
        section aria-labelledby="stores" {
            h2 #stores { "Stores, since the start" }
            ul.stores {
                @for store in stores { (store_item(store)) }
            }
        }
    }
}

/// Writes `store redis: OK, 99 of 100 answers within 0.4 ms · 812 keys that have spent something, room for 187,000`; while it is away, the
/// time of its last answer.
pub(super) fn in_short(store: &StoreSnapshot) -> Markup {
    let StoreSnapshot { name, state, breaker, .. } = store;
    let is_ok = *state == StoreState::Ok;
    html! {
        "store " strong { (name) } ": "
        @match state {
            StoreState::Ok => { span.state.ok { "OK" } },
            StoreState::Fallback => { span.state.outage { "in fallback" } },
            _ => { span.state { "down" } },
        }
        @match breaker {
            BreakerState::Closed => {},
            BreakerState::Open => { ", breaker open: it is not asked" },
            BreakerState::HalfOpen => { ", breaker half open: it is asked on trial" },
        }
        @if let Some(at) = store.answered_at.filter(|_| !is_ok) { ", last answer at " (shape::time_of_day(at)) " UTC" }
        @if let Some(p99) = store.p99 {
            @if is_ok { ", " } @else { ", until then " }
            "99 of 100 answers within " (shape::millis_of(p99))
        }
        @if store.slots > 0 {
            " · " (shape::counted(store.keys as u64, "key that has", "keys that have")) " spent something, room for " (shape::count(store.slots))
        }
    }
}

/// The counts of a store.
fn store_item(store: &StoreSnapshot) -> Markup {
    let StoreSnapshot { name, errors, undecided, .. } = store;
    let failed = errors.timeout + errors.unavailable + errors.protocol;
    html! {
        li {
            strong { (name) } ": " (shape::counted(failed, "call", "calls")) " without an answer"
            @if failed > 0 {
                " (" (shape::count(errors.timeout)) " not in time, " (shape::count(errors.unavailable)) " not reached, "
                (shape::count(errors.protocol)) " unreadable)"
            }
            " · its breaker has opened " (shape::counted(store.opened, "time", "times"))
            @if store.fallback_decisions > 0 || !store.in_fallback.is_zero() {
                " · " (shape::counted(store.fallback_decisions, "decision", "decisions")) " without it in "
                (shape::span(store.in_fallback.as_secs()))
            }
            @if store.unsettled_keys > 0 {
                " · " (shape::counted(store.unsettled_keys as u64, "key", "keys")) " whose spending " (name) " has not been told yet"
            }
            @if store.slots > 0 { " · " (shape::counted(store.evictions, "key", "keys")) " forgotten for lack of room" }
            @if !undecided.is_empty() {
                " · requests that it was not asked about: "
                @for (place, (why, count)) in undecided.iter().enumerate() {
                    @if place > 0 { ", " }
                    (shape::count(count)) " " (why.as_str().replace('_', " "))
                }
            }
        }
    }
}

// The keys that were refused most, and those that ask most.
//
// Each key has its actions beside it. The form behind a button carries a sealed word and never the key.

/// The number of keys that are shown of each kind; the JSON has all of them.
const MOST: usize = 10;

pub(super) fn offenders_section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    let is_listed =
        |policy: &&PolicyStatus| !policy.offenders.is_empty() || policy.crowd || !policy.askers.is_empty();
    let has_digest = |policy: &PolicyStatus| {
        let kinds =
            policy.offenders.iter().map(|key| key.kind).chain(policy.askers.iter().map(|key| key.kind));
        kinds.into_iter().any(|kind| kind == "digest")
    };
    html! {
        section aria-labelledby="offenders" {
            h2 #offenders { "Most refused keys, last 10 minutes" }
            @if !policies.iter().any(|policy| is_listed(&policy)) { p { "No key was refused." } }
            @if token.is_some() && policies.iter().any(has_digest) {
                p.note { "A digest stands for a key that may be a secret. If it is a name, let its extractor say so by of_kind(KeyKind::Name): then it is shown here." }
            }
            @for policy in policies.iter().filter(is_listed) {
                h3 { (policy.name) }
                @if !policy.offenders.is_empty() {
                    ol.offenders {
                        @for offender in policy.offenders.iter().take(MOST) { (offender_item(policy, offender, token)) }
                    }
                }
                @if policy.crowd { p.note { "Many keys were refused a few times each; of these none stands out." } }
                @if !policy.askers.is_empty() { (asking(&policy.askers)) }
            }
        }
    }
}

fn offender_item(policy: &PolicyStatus, offender: &OffenderShown, token: Option<&str>) -> Markup {
    let mut buttons = vec![("look-up", "look up".to_owned())];
    if policy.suspends {
        buttons.extend(["suspend", "release"].map(|verb| (verb, verb.to_owned())));
    }
    html! {
        li {
            (key(offender.kind, &offender.key))
            " refused " span.number { (shape::count(offender.rejected)) }
            @if offender.error > 0 { " (at most " (shape::count(offender.error)) " too high)" }
            " " (if offender.rejected == 1 { "time" } else { "times" }) ", " (shape::percent(offender.share)) " of all refusals"
            @if let Some(until) = &offender.suspended_until {
                " · suspended until " time datetime=(until) { (shape::clock(until)) " UTC" }
            }
            @if let Some(token) = token.filter(|_| offender.is_known) {
                (look_up::by_reference(token, &offender.reference, &buttons, &format!("{} of {}", offender.key, policy.name)))
            }
        }
    }
}

/// Lists the keys that ask most, because slow abuse below the limit is never refused.
fn asking(askers: &[AskerShown]) -> Markup {
    html! {
        p.note {
            "Keys that ask most: "
            @for (index, asker) in askers.iter().take(MOST).enumerate() {
                @if index > 0 { "; " }
                (key(asker.kind, &asker.key)) " asked about " (shape::counted(asker.asked, "time", "times")) ", "
                (shape::percent(asker.remaining)) " of its quota left"
            }
        }
    }
}

fn key(kind: &str, key: &str) -> Markup {
    html! { span.key { @if kind == "digest" { "digest " } (key) } }
}
