//! A value by which instances of a service tell each other of changes, in the store that they share: [`Shared`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::StoreError;

/// A few bytes that all instances of a service share by their store, such as the overrides of operators; for authors of stores,
/// who offer it by [`Store::shared`](crate::Store::shared).
pub trait Shared: Send + Sync {
    /// Writes, if what is there is still what the writer has seen, and says what is there then; without a write, it only reads.
    /// Nothing is there at first, and again when the store has lost it: no bytes.
    ///
    /// # Contract
    /// It starts its work when it is called, and finishes it, also when the future is dropped. Bytes that this or any other
    /// call reads or writes are told to the listeners of the store, as [`Event::Shared`](super::Event::Shared); a store tells new
    /// listeners the last that it knows, and looks for news every few seconds.
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
    /// How long it is needed: after that the store may forget it.
    pub keep: Duration,
}
