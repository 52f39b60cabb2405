//! The common parts of the page: the fields and buttons of forms.
//!
//! Forms are sent to the address of the page, with its query, so that the chosen colours stay, and each carries the token.

use maud::{Markup, html};

/// A form whose buttons act on a key that only a word stands for. Screen readers hear `whose` with each button.
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

/// A field with its label. Browsers neither keep its text nor show it again.
pub(super) fn field(id: &str, name: &str, label: &str, hint: &str) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            input #(id) name=(name) placeholder=(hint) autocomplete="off" spellcheck="false";
        }
    }
}

/// A field that has a text already, to be sent as it is or changed.
pub(super) fn written(id: &str, name: &str, label: &str, text: &str) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            input #(id) name=(name) value=(text) required autocomplete="off" spellcheck="false";
        }
    }
}

/// The button that ends the override of this version.
pub(super) fn withdraw(token: &str, (policy, version): (&str, u64), text: &str) -> Markup {
    html! {
        form.buttons method="post" {
            (hidden("token", token))
            (hidden("policy", policy))
            (hidden("version", &version.to_string()))
            button name="do" value="withdraw" { (text) }
        }
    }
}
