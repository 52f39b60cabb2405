//! The bytes that instances share, for overrides of operators: one key, read every few seconds, and whenever a connection is new.

mod command;
mod known;
mod shared_key;

pub(crate) use self::known::Known;
pub(crate) use self::shared_key::SharedKey;
