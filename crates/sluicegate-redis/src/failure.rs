//! What an error of the client means: for the request, and for the connection.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use sluicegate_core::{StoreError, StoreErrorKind};

/// What is to be done about the connection that an error came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing: the connection works, and this call failed for itself.
    Keep,
    /// It did not answer; a few of those in a row, and it is replaced.
    Count,
    /// It leads to the wrong place, or nowhere: replace it.
    Replace,
}

/// The code that the server's reply began with.
///
/// Redis before 7 wraps what happened inside a script: `ERR Error running script (...): @user_script:1: OOM ...`.
pub(crate) fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let inner = error.detail().filter(|_| code == "ERR").and_then(|detail| {
        let known = ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "NOPERM", "LOADING", "BUSY"];
        known.into_iter().find(|known| detail.split(' ').any(|word| word == *known))
    });
    Some(inner.unwrap_or(code))
}

/// Whether the server does not have the script: after a restart, a failover, `SCRIPT FLUSH`, at any time.
pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the node that was asked does not have the slot, or not all of it; it has done nothing.
pub(crate) fn is_on_the_way(error: &RedisError) -> bool {
    matches!(error.code(), Some("MOVED" | "ASK" | "TRYAGAIN"))
}

/// What to do about the connection.
pub(crate) fn remedy(error: &RedisError) -> Remedy {
    if error.is_timeout() {
        return Remedy::Count;
    }
    match code(error) {
        Some("READONLY" | "MASTERDOWN" | "NOAUTH" | "WRONGPASS" | "CLUSTERDOWN" | "LOADING") => {
            Remedy::Replace
        }
        Some(_) => Remedy::Keep,
        None => match error.kind() {
            ErrorKind::UnexpectedReturnType | ErrorKind::InvalidClientConfig => Remedy::Keep,
            _ => Remedy::Replace,
        },
    }
}

/// The error as callers see it.
pub(crate) fn store_error(error: RedisError) -> StoreError {
    let kind = if error.is_timeout() {
        StoreErrorKind::Timeout
    } else if error.kind() == ErrorKind::UnexpectedReturnType {
        StoreErrorKind::Protocol
    } else {
        StoreErrorKind::Unavailable
    };
    StoreError::with_source(kind, error)
}
