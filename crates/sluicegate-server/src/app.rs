//! The state that all requests share: [`App`].

use std::fmt;
use std::sync::Arc;

use sluicegate_observed::Observed;
use sluicegate_rules::Rules;
use sluicegate_status::StatusPage;
use sluicegate_tower::key::Networks;
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::bounds::Bounds;
use crate::charge::Charge;
use crate::ready::Ready;
use crate::receipt::ReceiptTokens;

/// Renders the metrics of the process.
pub(crate) type Render = Box<dyn Fn() -> String + Send + Sync>;

/// The rules in force, and the server's own state.
pub(crate) struct App {
    pub(crate) rules: Rules,
    pub(crate) bounds: Bounds,
    pub(crate) charge: Charge,
    pub(crate) access: Access,
    pub(crate) proxies: Networks,
    pub(crate) receipts: ReceiptTokens,
    pub(crate) ready: Ready,
    /// One permit per request that may be in progress.
    pub(crate) in_progress: Arc<Semaphore>,
    /// One permit per request that may wait for its turn.
    pub(crate) waiting: Semaphore,
    pub(crate) observed: Option<Observed>,
    pub(crate) page: Option<StatusPage>,
    pub(crate) metrics: Option<Render>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("bounds", &self.bounds)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
