//! The pass of a visitor that was let in: [`Pass`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluicegate_core::StoreError;

use crate::line::{Line, LinePlace};

/// The pass of a visitor, in the extensions of each request that a room lets through.
///
/// A handler ends the pass when the visitor is done, so that another visitor may enter if the number of
/// [active](crate::WaitingRoomBuilder::most_active) visitors is bounded. The response then removes the cookie.
///
/// ```
/// use http::Extensions;
/// use sluicegate_core::StoreError;
/// use sluicegate_overflow::Pass;
///
/// /// The last step of an order.
/// async fn paid(extensions: &Extensions) -> Result<(), StoreError> {
///     match extensions.get::<Pass>() {
///         Some(pass) => pass.end().await,
///         None => Ok(()),
///     }
/// }
/// # _ = paid;
/// ```
#[derive(Clone)]
pub struct Pass {
    place: LinePlace,
    line: Arc<dyn Line>,
    is_ended: Arc<AtomicBool>,
}

impl Pass {
    /// The pass of this place, valid until it expires or is ended.
    pub(crate) fn new(place: LinePlace, line: Arc<dyn Line>) -> Self {
        Self { place, line, is_ended: Arc::default() }
    }

    /// Ends the pass: the next request with it waits in line like any other.
    ///
    /// # Errors
    /// When the line does not answer; the pass may then be valid until it expires.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the pass may have ended or not.
    pub async fn end(&self) -> Result<(), StoreError> {
        // Relaxed: it is one flag, read by the response of the same request.
        self.is_ended.store(true, Ordering::Relaxed);
        self.line.end(self.place).await
    }

    /// Whether this request has ended the pass, so that its response removes the cookie.
    pub(crate) fn is_ended(&self) -> bool {
        // Relaxed: as above.
        self.is_ended.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("number", &self.place.number).finish_non_exhaustive()
    }
}
