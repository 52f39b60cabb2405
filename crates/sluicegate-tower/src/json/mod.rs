//! Reads fields of JSON: of a whole object; of one that comes in pieces, without buffering; and of server-sent events.

mod object;
mod scanner;
#[cfg(test)]
mod tests;

pub(crate) use self::object::{EventStream, FieldPath, FieldValue, read_object, whole_number};
pub(crate) use self::scanner::JsonScanner;
