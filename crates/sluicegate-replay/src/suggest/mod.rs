//! Limits that reject no more than a share: what is kept of a log, and what is looked for in it.

mod all;
mod record;
mod search;

pub(crate) use self::all::suggest_all;
pub(crate) use self::record::{Event, Record};
