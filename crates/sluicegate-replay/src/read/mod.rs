//! From the bytes of logs to requests and their asks: [`Reader`], by several threads.

mod brought;
mod format;
mod lines;
mod pool;
mod reader;
mod request;
mod rows;

pub(crate) use self::brought::{Brought, OWN_OF_ROW};
pub use self::format::Format;
pub(crate) use self::format::time;
pub(crate) use self::lines::{Batch, Batches, LONGEST};
pub(crate) use self::pool::take_apart;
pub(crate) use self::reader::{Came, Reader, Span, Taken, Wanted};
pub(crate) use self::rows::{Named, Rows};
