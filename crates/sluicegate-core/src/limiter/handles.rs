//! Finds the one handle of a policy name on a store.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::handle::{Handle, RateLimiter};
use crate::error::ConfigError;
use crate::policy::PolicyBuilder;
use crate::store::{IntoStore, Limiters, make_room};

impl Limiters {
    /// The handle of this name, if it is open.
    pub fn get(&self, name: &str) -> Option<RateLimiter> {
        find(&self.lock(), name)
    }

    /// All open handles, by name.
    pub fn all(&self) -> Vec<RateLimiter> {
        let mut all: Vec<_> = self.lock().values().filter_map(limiter).collect();
        all.sort_unstable_by(|a, b| {
            a.0.first.prepared.policy().name().cmp(b.0.first.prepared.policy().name())
        });
        all
    }
}

/// The reference to a limiter that its store holds.
type WeakLimiter = Weak<dyn Any + Send + Sync>;

fn limiter(held: &WeakLimiter) -> Option<RateLimiter> {
    held.upgrade()?.downcast().ok().map(|handle| RateLimiter(handle, None))
}

pub(super) fn find(handles: &HashMap<String, WeakLimiter>, name: &str) -> Option<RateLimiter> {
    handles.get(name).and_then(limiter)
}

/// Registers a new handle, and occasionally removes dropped handles.
pub(super) fn insert(handles: &mut HashMap<String, WeakLimiter>, limiter: &RateLimiter) {
    make_room(handles, |handle| handle.strong_count() > 0);
    let handle: Weak<Handle> = Arc::downgrade(&limiter.0);
    handles.insert(limiter.0.first.prepared.policy().name().to_owned(), handle);
}

impl PolicyBuilder {
    /// Builds the policy and puts it on a store, which makes a [`RateLimiter`].
    ///
    /// # Errors
    /// As [`build`](Self::build), and when the store cannot support the policy.
    ///
    /// A store is given by reference or by value; both are handles to the same store.
    ///
    /// Equal policies share their buckets, wherever they are opened: see [`RateLimiter::new`].
    #[track_caller]
    pub fn on(self, store: impl IntoStore) -> Result<RateLimiter, ConfigError> {
        RateLimiter::new(store, self.build()?)
    }
}
