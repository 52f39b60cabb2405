//! Locks around counts: [`lock`].

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poisoning, because counts are not worth a panic.
pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
