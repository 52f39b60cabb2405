//! The page, drawn on the server: it has no scripts.
//!
//! `page` is the frame, and each section has a file that draws a part of the document. `maud` escapes all inserted text, so that a key, a
//! tenant or the name of a policy is always plain text.
//!
//! Parts that open and close are `details`, actions are forms, and choices are links with a query: all of it works in a browser with
//! scripts off, and by keyboard. Fields and buttons have names for screen readers, which do not see the row that they are in, and rows of
//! bars are read out as numbers. Colours come in pairs, light and dark, each with a contrast of 4.5 at least; below 45 rem a row of the
//! table becomes a card.

mod adaptive;
mod budgets;
mod columns;
mod events;
mod forms;
mod look_up;
mod offenders;
mod page;
mod policies;
mod rooms;
mod shared;
mod stores;
mod summary;
mod tighten;

pub(crate) use self::page::{Look, STYLE, Theme, page};
