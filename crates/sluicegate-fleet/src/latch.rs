//! Lets requests wait for the result of another one: [`Latch`].

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Opens once, for all waiters, in the order of their arrival.
#[derive(Clone, Debug)]
pub(crate) struct Latch(Arc<Semaphore>);

impl Latch {
    /// A latch at which all callers wait until it is opened.
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets all waiters pass, including later ones. Opening it again does nothing.
    pub(crate) fn open(&self) {
        self.0.close();
    }

    /// Waits until it is open.
    pub(crate) async fn opened(self) {
        // The semaphore has no permits, so the only answer is that it is closed, which wakes in the order of arrival.
        _ = self.0.acquire().await;
    }
}
