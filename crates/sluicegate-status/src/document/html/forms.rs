//! The common parts of the page's forms: they are sent to where the page is, with its query, so that the chosen colours stay,
//! and each carries the token.

use maud::{Markup, html};

/// A form whose buttons do something to a key, which only a word stands for. They are named after `whose` for those who hear them.
pub(super) fn by_reference(token: &str, reference: &str, buttons: &[(&str, String)], whose: &str) -> Markup {
    html! {
        form.buttons method="post" {
            (hidden("token", token))
            (hidden("ref", reference))
            @for (verb, text) in buttons {
                button name="do" value=(verb) aria-label={ (text) ": " (whose) } { (text) }
            }
        }
    }
}

pub(super) fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// A field with its label. Its text is neither kept by browsers nor shown again.
pub(super) fn field(id: &str, name: &str, label: &str, hint: &str) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            input #(id) name=(name) placeholder=(hint) autocomplete="off" spellcheck="false";
        }
    }
}
