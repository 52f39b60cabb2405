//! A value in the shared store by which instances of a service tell each other of changes: [`Shared`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StoreError;

/// A few bytes that all instances of a service share by their store, such as the overrides of operators. Authors of stores offer
/// it by [`Store::shared`](crate::Store::shared).
pub trait Shared: Send + Sync {
    /// Writes, if the store still has the value that the writer has seen, and returns the value that it has then; without a write, it only
    /// reads. At first, and after the store has lost it, the value has no bytes.
    ///
    /// # Contract
    /// It starts its work when it is called, and finishes it, also when the future is dropped. The listeners of the store are told of
    /// the bytes that this or any other call reads or writes, by [`Event::Shared`](super::Event::Shared); a store tells new
    /// listeners the last bytes that it knows, and looks for news every few seconds.
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture;
}

/// The value that is there now, or why it is not known.
pub type SharedFuture = Pin<Box<dyn Future<Output = Result<Arc<[u8]>, StoreError>> + Send>>;

/// The value to write, for [`Shared::exchange`].
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "it is what a compare-and-set takes, and nothing else")]
pub struct Write<'a> {
    /// The value that has to be there before, to the byte.
    pub over: &'a [u8],
    /// The value afterwards.
    pub bytes: &'a [u8],
    /// The time for which it is needed: after that the store may forget it.
    pub keep: Duration,
}
