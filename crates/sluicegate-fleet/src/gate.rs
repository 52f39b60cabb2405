//! Waiting for what another request finds out: [`Gate`].

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Opens once, for all who wait at it, in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    /// A gate at which everybody waits until somebody opens it.
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets all pass, those who come later too. To open it again does nothing.
    pub(crate) fn open(&self) {
        self.0.close();
    }

    /// Waits until it is open.
    pub(crate) async fn opened(self) {
        // It has no permits, so that the only answer is that it is closed, which wakes in the order of arrival.
        _ = self.0.acquire().await;
    }
}
