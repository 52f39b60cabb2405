//! The page, drawn on the server: it has no scripts.

mod events;
mod forms;
mod look_up;
mod number;
mod offenders;
mod page;
mod policies;
mod stores;

pub(crate) use self::page::{Look, STYLE, Theme, page};
