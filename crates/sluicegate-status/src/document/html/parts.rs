//! The common parts of the page: tables with their columns, and the fields and buttons of forms.
//!
//! Forms are sent to the address of the page, with its query, so that the chosen colours stay, and each carries the token.

use maud::{Markup, PreEscaped, html};

/// A table with a row for each item. Its columns are added one by one; the first one is the head of the row.
pub(super) struct Table<T> {
    items: Vec<T>,
    /// The cells of each item so far.
    rows: Vec<String>,
    head: String,
    /// The columns that need one, with their meanings.
    meanings: Vec<(&'static str, &'static str)>,
}

impl<T> Table<T> {
    /// A table of these items, without columns.
    pub(super) fn of(items: impl IntoIterator<Item = T>) -> Self {
        let items: Vec<T> = items.into_iter().collect();
        Self { rows: vec![String::new(); items.len()], items, head: String::new(), meanings: Vec::new() }
    }

    /// Adds a column of texts.
    pub(super) fn text(self, name: &'static str, cell: impl Fn(&T) -> Markup) -> Self {
        if self.head.is_empty() {
            return self.column(name, None, |item| html! { th scope="row" { (cell(item)) } });
        }
        self.column(name, None, |item| html! { td data-label=(name) { (cell(item)) } })
    }

    /// Adds a column of numbers.
    pub(super) fn number(self, name: &'static str, cell: impl Fn(&T) -> Markup) -> Self {
        self.column(name, Some("number"), |item| html! { td.number data-label=(name) { (cell(item)) } })
    }

    /// Adds a column of bars.
    pub(super) fn plots(self, name: &'static str, cell: impl Fn(&T) -> Markup) -> Self {
        self.column(name, None, |item| html! { td.plots data-label=(name) { (cell(item)) } })
    }

    /// Adds a column of forms, for a visitor that may act.
    pub(super) fn forms(
        self,
        name: &'static str,
        token: Option<&str>,
        form: impl Fn(&T, &str) -> Markup,
    ) -> Self {
        let Some(token) = token else { return self };
        self.column(name, None, |item| html! { td.change { (form(item, token)) } })
    }

    fn column(mut self, name: &'static str, class: Option<&str>, cell: impl Fn(&T) -> Markup) -> Self {
        self.head += &html! { th class=[class] scope="col" { (name) } }.0;
        for (row, item) in self.rows.iter_mut().zip(&self.items) {
            *row += &cell(item).0;
        }
        self
    }

    /// Adds the meaning of a column.
    pub(super) fn meaning(mut self, name: &'static str, meaning: &'static str) -> Self {
        self.meanings.push((name, meaning));
        self
    }

    /// The table, and below it the meanings of its columns. They open by keyboard and by touch, which no text under a pointer does.
    pub(super) fn draw(self) -> Markup {
        html! {
            table {
                thead { tr { (PreEscaped(self.head)) } }
                tbody { @for row in self.rows { tr { (PreEscaped(row)) } } }
            }
            @if !self.meanings.is_empty() {
                details {
                    summary { "the columns explained" }
                    dl {
                        @for (name, meaning) in self.meanings {
                            dt { (name) }
                            dd { (meaning) }
                        }
                    }
                }
            }
        }
    }

    /// A section with the table; nothing if it has no rows.
    pub(super) fn section(self, id: &str, title: &str) -> Markup {
        html! {
            @if !self.rows.is_empty() {
                section aria-labelledby=(id) {
                    h2 id=(id) { (title) }
                    (self.draw())
                }
            }
        }
    }
}

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
