//! A value in the shared store through which instances of a service exchange changes: [`Shared`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StoreError;

/// A few bytes that all instances of a service share through their store, such as operators' overrides. Authors of stores offer
/// it by [`Store::shared`](crate::Store::shared).
pub trait Shared: Send + Sync {
    /// Writes, if the store still has the value that the writer has read, and returns the value that it has then; without a write, it only
    /// reads. The value is empty at first, and after the store has lost it.
    ///
    /// # Contract
    /// It starts its work when it is called, and finishes it even if the future is dropped. The listeners of the store receive
    /// the bytes that this or any other call reads or writes, by [`Event::Shared`](super::Event::Shared); a store passes new
    /// listeners the last bytes that it knows, and looks for changes every few seconds.
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture;
}

/// The current value, or the reason why it is unknown.
pub type SharedFuture = Pin<Box<dyn Future<Output = Result<Arc<[u8]>, StoreError>> + Send>>;

/// The value to write, for [`Shared::exchange`].
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "it is what a compare-and-set takes, and nothing else")]
pub struct Write<'a> {
    /// The value that is replaced; it has to match to the byte.
    pub over: &'a [u8],
    /// The new value.
    pub bytes: &'a [u8],
    /// The time for which it is needed; after that the store may forget it.
    pub keep: Duration,
}
