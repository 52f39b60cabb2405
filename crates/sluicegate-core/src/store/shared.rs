//! The side of a store that the instances of a service share: [`Shared`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::SharedPermits;
use crate::error::{ConfigError, ConfigErrorKind, StoreError};

/// What all instances of a service share through their store: a few bytes, such as operators' overrides, and permits. Authors of stores
/// offer it by [`Capabilities::shared`](super::Capabilities::shared).
pub trait Shared: Send + Sync {
    /// Writes, if the store still has the value that the writer has read, and returns the value that it has then; without a write, it only
    /// reads. The value is empty at first, and after the store has lost it.
    ///
    /// # Contract
    /// It starts its work when it is called, and finishes it even if the future is dropped. The listeners of the store receive
    /// the bytes that this or any other call reads or writes, by [`Event::Shared`](super::Event::Shared); a store passes new
    /// listeners the last bytes that it knows, and looks for changes every few seconds.
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture;

    /// Keeps the permits of a limit on requests under way for all instances of the service, from now on. By default it cannot.
    ///
    /// # Errors
    /// When the store cannot share permits.
    fn share_permits(&self, permits: &Arc<dyn SharedPermits>) -> Result<(), ConfigError> {
        Err(cannot_share(permits))
    }
}

/// The error of a store that instances share, and that cannot share permits.
pub(super) fn cannot_share(permits: &Arc<dyn SharedPermits>) -> ConfigError {
    let problem = format!(
        "the store cannot share the permits of {:?} among instances: put it on a single Redis store, or use `build`",
        permits.name()
    );
    ConfigError::new(ConfigErrorKind::Unsupported, problem)
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
