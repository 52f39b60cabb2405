//! The open handles of a store, and the overrides of their policies: [`Limiters`].
//!
//! Queues, replacements and derived header values belong to a handle, so two handles with one name
//! would be two queues for one bucket.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use super::alone::Memory;
use crate::key::KeyRef;
use crate::policy::{Board, Policy};
use crate::support::lock;

/// The handles of a store: one per policy name, so that every caller that names a policy sees its replacements and joins
/// its queues. Authors of stores keep one and return it from [`Store::limiters`](crate::Store::limiters).
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
    known_keys: OnceLock<Box<KnowsKeys>>,
    memory: Arc<Memory>,
    suspension_lines: Mutex<crate::suspension::SuspensionLines>,
}

/// Tests whether a key is known: whether it came before the requests of its policy became unusual.
pub type KnownKeys = Arc<dyn Fn(KeyRef<'_>) -> bool + Send + Sync>;

/// The currently known keys of a policy.
type KnowsKeys = dyn Fn(&Policy) -> Option<KnownKeys> + Send + Sync;

/// Handles by name. A store holds them without knowing their type, which belongs to the [`RateLimiter`](crate::RateLimiter).
type Handles = HashMap<String, Weak<dyn Any + Send + Sync>>;

impl Limiters {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Handles> {
        lock(&self.handles)
    }

    /// Sets the function that returns the known keys of a policy when an override [for new keys](crate::policy::Override::is_for_new_keys)
    /// begins; it returns `None` if all are known. For stores that remember keys; the first call wins. It is called in the middle of a
    /// replacement, so it must neither open nor replace policies.
    pub fn know_keys(&self, known: impl Fn(&Policy) -> Option<KnownKeys> + Send + Sync + 'static) {
        // The first one stays.
        _ = self.known_keys.set(Box::new(known));
    }

    /// The known keys of this policy; `None` if all are known.
    pub(crate) fn known_keys(&self, policy: &Policy) -> Option<KnownKeys> {
        self.known_keys.get()?(policy)
    }

    /// The overrides that this instance knows of. No other lock is taken while this one is held.
    pub(crate) fn overrides(&self) -> MutexGuard<'_, Board> {
        lock(&self.overrides)
    }

    /// The memory in which these handles decide while the store gives no answer.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The lines in the log about suspensions by refusals, of all policies together.
    pub(crate) fn suspension_lines(&self) -> MutexGuard<'_, crate::suspension::SuspensionLines> {
        lock(&self.suspension_lines)
    }

    /// True only for the first call: its caller makes these handles follow the value that the store shares.
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
