//! Requests without a key: [`OnMissingKey`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;

use crate::key::MissingKey;

/// What happens to a request whose key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one bucket. Unless it was chosen, a warning is logged once.
    Share,
    /// They are refused with this status.
    Reject(StatusCode),
    /// This limit does not apply to them.
    Skip,
}

/// The choice that was made for a limit, if any, and whether anything was logged. Clones log once together.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhenMissing {
    pub(crate) chosen: Option<OnMissingKey>,
    logged: Arc<AtomicBool>,
}

impl WhenMissing {
    /// The action for a request without this key: the one that its extractor asks for, then the one that was chosen for
    /// the limit of this name.
    pub(crate) fn action(&self, missing: &MissingKey, name: impl FnOnce() -> String) -> OnMissingKey {
        if let Some(status) = missing.reject() {
            return OnMissingKey::Reject(status);
        }
        if let Some(chosen) = self.chosen {
            return chosen;
        }
        // Relaxed: at worst two threads log.
        let is_first = !self.logged.load(Ordering::Relaxed) && !self.logged.swap(true, Ordering::Relaxed);
        if missing.is_mistake() {
            if is_first {
                tracing::error!(limit = name(), "requests are refused with 500: {missing}");
            }
            return OnMissingKey::Reject(StatusCode::INTERNAL_SERVER_ERROR);
        }
        if is_first {
            tracing::warn!(
                limit = name(),
                "requests without a key share one bucket of this limit: {missing}"
            );
        }
        OnMissingKey::Share
    }
}
