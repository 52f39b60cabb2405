//! Limits that reject no more than a share: the kept part of a log, and the search in it.
//!
//! While the log is read, a [`LogRecord`] keeps which key asked when, as far as there is room. At the end the least limit of each row is
//! searched in it, by itself, and then all found limits are replayed together.

mod all;
mod frontier;
mod record;
mod search;

pub(super) use self::all::{WantedLimits, suggest_all};
pub(super) use self::record::{AskKind, LogRecord, RecordedAsk, mixed};
