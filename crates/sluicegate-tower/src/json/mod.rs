//! Reads fields of JSON: of a whole object; of one that comes in pieces, without buffering; and of server-sent events.

mod events;
mod object;
mod pass;
mod path;
mod scanner;
#[cfg(test)]
mod tests;

pub(crate) use self::events::EventStream;
pub(crate) use self::object::{FieldValue, read_object, whole_number};
pub(crate) use self::path::FieldPath;
pub(crate) use self::scanner::JsonScanner;
