//! The keys that were refused most.

use maud::{Markup, html};

use super::{forms, number};
use crate::document::{OffenderShown, PolicyStatus};

pub(super) fn section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    html! {
        section aria-labelledby="offenders" {
            h2 #offenders { "Most rejected, 10 minutes" }
            @if policies.iter().all(|policy| policy.offenders.is_empty()) {
                p { "No key was refused." }
            } @else {
                @for policy in policies.iter().filter(|policy| !policy.offenders.is_empty()) {
                    h3 { (policy.name) }
                    ol.offenders {
                        @for offender in &policy.offenders { (item(offender, token)) }
                    }
                }
            }
        }
    }
}

fn item(offender: &OffenderShown, token: Option<&str>) -> Markup {
    html! {
        li {
            span.key { @if offender.kind == "digest" { "digest " } (offender.key) }
            " " span.number { (number::count(offender.rejected)) }
            @if offender.error > 0 { " ±" (number::count(offender.error)) }
            " · " (number::percent(offender.share))
            @if let Some(token) = token {
                (forms::by_reference(token, &offender.reference, &[("look-up", "look up")], &offender.key))
            }
        }
    }
}
