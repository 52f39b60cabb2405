//! The columns of a table, explained in sentences.

use maud::{Markup, html};

/// Each of these columns and its meaning. It opens by keyboard and by touch, which no text under a pointer does.
pub(super) fn explained(columns: &[(&str, &str)]) -> Markup {
    html! {
        details {
            summary { "the columns explained" }
            dl {
                @for (column, meaning) in columns {
                    dt { (column) }
                    dd { (meaning) }
                }
            }
        }
    }
}
