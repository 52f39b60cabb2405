//! Tables with a row for each item: [`Table`].

use maud::{Markup, PreEscaped, html};

/// A table with a row for each item. Its columns are added one by one; the first one is the head of the row.
#[derive(Debug)]
pub struct Table<T> {
    items: Vec<T>,
    /// The cells of each item so far.
    rows: Vec<String>,
    head: String,
    /// The name of the last column.
    last: &'static str,
    /// The columns that need one, with their meanings.
    meanings: Vec<(&'static str, &'static str)>,
}

impl<T> Table<T> {
    /// A table of these items, without columns.
    pub fn of(items: impl IntoIterator<Item = T>) -> Self {
        let items: Vec<T> = items.into_iter().collect();
        let rows = vec![String::new(); items.len()];
        Self { items, rows, head: String::new(), last: "", meanings: Vec::new() }
    }

    /// Adds a column of texts.
    pub fn text(self, name: &'static str, cell: impl Fn(&T) -> Markup) -> Self {
        if self.head.is_empty() {
            return self.column(name, None, |item| html! { th scope="row" { (cell(item)) } });
        }
        self.column(name, None, |item| html! { td data-label=(name) { (cell(item)) } })
    }

    /// Adds a column of numbers.
    pub fn number(self, name: &'static str, cell: impl Fn(&T) -> Markup) -> Self {
        self.column(name, Some("number"), |item| html! { td.number data-label=(name) { (cell(item)) } })
    }

    /// Adds a column of bars.
    pub fn plots(self, name: &'static str, cell: impl Fn(&T) -> Markup) -> Self {
        self.column(name, None, |item| html! { td.plots data-label=(name) { (cell(item)) } })
    }

    /// Adds a column of forms, for a visitor that may act.
    pub fn forms(self, name: &'static str, token: Option<&str>, form: impl Fn(&T, &str) -> Markup) -> Self {
        let Some(token) = token else { return self };
        self.column(name, None, |item| html! { td.change { (form(item, token)) } })
    }

    fn column(mut self, name: &'static str, class: Option<&str>, cell: impl Fn(&T) -> Markup) -> Self {
        self.last = name;
        self.head += &html! { th class=[class] scope="col" { (name) } }.0;
        for (row, item) in self.rows.iter_mut().zip(&self.items) {
            *row += &cell(item).0;
        }
        self
    }

    /// Adds the meaning of the last column.
    pub fn meaning(mut self, meaning: &'static str) -> Self {
        self.meanings.push((self.last, meaning));
        self
    }

    /// The table, and below it the meanings of its columns. They open by keyboard and by touch, which no text under a pointer does.
    pub fn draw(self) -> Markup {
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
    pub fn section(self, id: &str, title: &str) -> Markup {
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
