//! A supervised connection to one target, for the lifetime of a store: [`Supervised`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::probe::Probe;
use super::server::Target;
use super::state::ConnectionState;
use super::supervisor::supervise;

/// A supervised connection to one target.
pub(crate) struct Supervised {
    state: Arc<ConnectionState>,
    supervisor: AbortHandle,
}

impl Supervised {
    /// Starts to connect in the background, and keeps connecting forever. Until `starts_until`, requests wait for the first connection.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn start(target: Target, probe: Probe, starts_until: Instant) -> Self {
        let state = Arc::new(ConnectionState::new(target.is_cluster(), starts_until));
        let supervisor = tokio::spawn(supervise(Arc::clone(&state), target, probe)).abort_handle();
        Self { state, supervisor }
    }

    /// The connection that requests send on.
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unavailable`] when there is no connection `within` this time, with the error of the last attempt.
    pub(crate) async fn up(&self, within: Duration) -> Result<(), StoreError> {
        timeout(within, self.state.up()).await.map_err(|_| {
            let problem = self.state.problem().map_or_else(String::new, |problem| format!(": {problem}"));
            let problem = format!("there is no connection to Redis{problem}");
            StoreError::with_source(StoreErrorKind::Unavailable, problem).unsent()
        })
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl fmt::Debug for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervised").field("is_up", &self.state.is_up()).finish()
    }
}
