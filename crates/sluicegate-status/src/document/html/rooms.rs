//! The waiting rooms, a row each. Without any, the section is left out.

use maud::{Markup, html};

use super::forms::{field, hidden};
use crate::document::{RoomShown, number};

pub(super) fn section(rooms: &[RoomShown], token: Option<&str>) -> Markup {
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
                        @for room in rooms { (row(room, token)) }
                    }
                }
            }
        }
    }
}

fn row(room: &RoomShown, token: Option<&str>) -> Markup {
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
            td.number data-label="visitors waiting" { (number::count(room.waiting)) }
            td.number data-label="wait of the last" {
                // The wait is unknown while the room is paused.
                @match room.wait_seconds { Some(wait) => { (number::wait(wait)) }, None => { "not known" } }
            }
            td.number data-label="visitors inside" {
                @match room.active { Some(active) => { (number::count(active)) }, None => { "not counted" } }
            }
            td.number data-label="let in so far" { (number::count(room.admitted)) }
            td.number data-label="places passed over" { (number::count(room.passed_over)) }
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
