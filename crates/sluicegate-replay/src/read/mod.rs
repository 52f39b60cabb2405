//! From the bytes of logs to requests and their asks: [`LineParser`], by several threads.

mod format;
mod lines;
mod reader;
mod rows;

pub use self::format::Format;
pub(crate) use self::format::Guess;
pub(crate) use self::lines::{Batches, LONGEST, LineBatch, take_apart};
pub(crate) use self::reader::{
    Came, KeyedAsk, LineParser, LogFormat, Marks, NO_CLIENT, NO_TEXT, ParsedBatch, ReadRange, network_of,
};
pub(crate) use self::rows::{Brought, CountedRow, OWN_OF_ROW, Rows};
pub(crate) use crate::read::format::time;
