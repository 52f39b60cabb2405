//! The open handles of a store, and the overrides of their policies: [`Limiters`].
//!
//! Queues, replacements and derived header values belong to a handle, so two handles of one name
//! would be two queues for one bucket.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::alone::Memory;
use crate::policy::Board;

/// The handles of a store: one per policy name, so that every caller that names a policy sees its replacements and stands in
/// its queues. For authors of stores, who keep one and hand it out by [`Store::limiters`](crate::Store::limiters).
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::{MemoryStore, Policy, Store};
///
/// let store: Arc<dyn Store> = MemoryStore::new().into();
/// let login = Policy::gcra("login", "5/min").on(Arc::clone(&store))?;
/// assert!(store.limiters().get("login").is_some_and(|found| found.is(&login)));
/// drop(login);
/// assert!(store.limiters().get("login").is_none());
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Default)]
pub struct Limiters {
    handles: Mutex<Handles>,
    overrides: Mutex<Board>,
    follows: AtomicBool,
    memory: Arc<Memory>,
}

/// By name. A store holds them and does not know what they are: that is the [`RateLimiter`](crate::RateLimiter)'s.
type Handles = HashMap<String, Weak<dyn Any + Send + Sync>>;

impl Limiters {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The overrides that this instance knows of. No other lock is taken while this one is held.
    pub(crate) fn overrides(&self) -> MutexGuard<'_, Board> {
        self.overrides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where these handles are decided while the store gives no answer.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// True for the first one who asks: the one who makes these handles follow what the store shares.
    pub(crate) fn is_first_to_follow(&self) -> bool {
        // Relaxed: it orders nothing else. Read first, because it is written once.
        !self.follows.load(Ordering::Relaxed) && !self.follows.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Debug for Limiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handles = self.lock();
        f.debug_set()
            .entries(handles.iter().filter(|(_, of)| of.strong_count() > 0).map(|(name, _)| name))
            .finish()
    }
}
