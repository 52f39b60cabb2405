//! The state in one sentence at the top of the page, with possible actions as the first buttons.

use maud::{Markup, html};

use super::forms::by_reference;
use super::tighten;
use crate::document::{Document, NextAction, sentence, steps};

pub(super) fn section(document: &Document, token: Option<&str>) -> Markup {
    html! {
        section.summary aria-labelledby="summary" {
            h2.unseen #summary { "In short" }
            p.sentence { (sentence(document)) }
            @if let Some(token) = token {
                @let steps = steps(document);
                @if !steps.is_empty() {
                    div.buttons { @for step in &steps { (button(step, token)) } }
                }
            }
        }
    }
}

fn button(step: &NextAction<'_>, token: &str) -> Markup {
    match step {
        NextAction::LookUp(policy, offender) => by_reference(
            token,
            &offender.reference,
            &[("look-up", format!("look up {}", offender.key))],
            &format!("most refused by {}", policy.name),
        ),
        NextAction::Tighten(policy, tighter) => tighten::at_once(policy, tighter, token),
        NextAction::Withdraw(policy) => tighten::end(policy, token),
    }
}
