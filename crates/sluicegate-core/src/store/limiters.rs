//! The open handles of a store: [`Limiters`].

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// The handles of a store: one per policy name, so that everybody who names a policy sees its replacements and stands in
/// its queues. For authors of stores, who keep one and hand it out by [`Store::limiters`](crate::Store::limiters).
#[derive(Default)]
pub struct Limiters(Mutex<Handles>);

/// By name. A store holds them and does not know what they are: that is the [`RateLimiter`](crate::RateLimiter)'s.
type Handles = HashMap<String, Weak<dyn Any + Send + Sync>>;

impl Limiters {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Handles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
