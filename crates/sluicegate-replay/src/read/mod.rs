//! From the bytes of logs to requests and their asks: [`LineParser`], by several threads.

mod brought;
mod format;
mod lines;
mod pool;
mod reader;
mod request;
mod rows;
mod visit;

pub(crate) use self::brought::{Brought, OWN_OF_ROW};
pub use self::format::Format;
pub(crate) use self::format::time;
pub(crate) use self::lines::{Batches, LONGEST, LineBatch};
pub(crate) use self::pool::take_apart;
pub(crate) use self::reader::{Came, KeyedAsk, LineParser, ParsedBatch, ReadRange};
pub(crate) use self::rows::{CountedRow, Rows};
pub(crate) use self::visit::{Marks, NO_CLIENT, NO_TEXT, network_of};
