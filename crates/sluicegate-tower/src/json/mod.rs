//! Reads fields of JSON that comes in pieces, without buffering: one object, or server-sent events.

mod events;
mod pass;
mod path;
mod scanner;
#[cfg(test)]
mod tests;

pub(crate) use self::events::EventStream;
pub(crate) use self::path::FieldPath;
pub(crate) use self::scanner::{FieldValue, JsonScanner};
