//! The meaning of a client error: for the request, and for the connection.
//!
//! | error | the request | the connection |
//! |---|---|---|
//! | no reply in time | `Timeout` | counts; three in a row replace it |
//! | `READONLY`, `MASTERDOWN`, `CLUSTERDOWN`, `LOADING` | `Unavailable` | leads to the wrong server: replaced |
//! | `NOAUTH`, `WRONGPASS` | `Unavailable` | replaced, with a line in the log |
//! | `OOM`, `MISCONF`, `NOPERM`, `BUSY` and others of the server | `Unavailable` | works: kept |
//! | a reply of the wrong type | `Protocol` | kept |
//! | broken in between | `Unavailable` | replaced |
//!
//! On a Cluster such an error only counts, and does not replace the connection at once, because other
//! nodes may work.
//!
//! No error is ever taken for a fresh bucket. An error of a command inside of the script
//! counts as the same error outside of it.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;

/// The action on the connection that an error came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Keep the connection: it works, and only this call failed.
    Keep,
    /// Count a missing answer; a few in a row replace the connection.
    Count,
    /// Replace the connection: it leads to the wrong server, or to none.
    Replace,
}

/// Codes that a command inside of a script may fail with.
const INNER: [&str; 8] =
    ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "NOPERM", "LOADING", "BUSY"];

/// The texts, without a code, by which a script learns that its user may not run a command or touch a key: of Redis up to 7.0,
/// and of later versions and Valkey.
const NO_RIGHT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// The code of the server's error.
///
/// Redis 6 wraps an error inside a script, with or without a dash before the code:
/// `ERR Error running script (call to f_...): @user_script:1: @user_script: 1: -OOM ...`.
fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let is_wrapped = code == "ERR" || code.starts_with("@user_script");
    let inner = error.detail().filter(|_| is_wrapped).and_then(|detail| {
        let mut words = detail.split(' ').map(|word| word.strip_prefix('-').unwrap_or(word));
        let known = words.find_map(|word| INNER.into_iter().find(|known| *known == word));
        known.or_else(|| NO_RIGHT.iter().any(|text| detail.contains(text)).then_some("NOPERM"))
    });
    Some(inner.unwrap_or(code))
}

/// Whether the server does not have the script: after a restart, a failover, `SCRIPT FLUSH`, at any time.
pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the node that was asked does not have the slot, or not all of it; then it has done nothing.
pub(super) fn is_on_the_way(error: &RedisError) -> bool {
    matches!(error.code(), Some("MOVED" | "ASK" | "TRYAGAIN"))
}

/// Whether an error for callers comes from a slot that the node does not have.
pub(crate) fn is_of_moving_slot(error: &StoreError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(is_on_the_way)
}

/// The action on the connection.
pub(super) fn remedy(error: &RedisError) -> Remedy {
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

/// The error with an explanation for the log.
pub(super) fn explain(error: &RedisError) -> String {
    if code(error) == Some("NOPERM") {
        return format!("{error}: give the user the rights that the documentation of sluicegate-redis lists");
    }
    error.to_string()
}

/// The error as callers see it.
pub(super) fn store_error(error: RedisError) -> StoreError {
    let kind = if error.is_timeout() {
        StoreErrorKind::Timeout
    } else if error.kind() == ErrorKind::UnexpectedReturnType {
        StoreErrorKind::Protocol
    } else {
        StoreErrorKind::Unavailable
    };
    StoreError::with_source(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error as read by the client from the wire.
    fn error(line: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        match reply.and_then(redis::Value::extract_error) {
            Ok(value) => panic!("{line}: {value:?}"),
            Err(error) => error,
        }
    }

    /// Each text was captured on the wire of that server.
    const SEEN: [(&str, &str); 20] = [
        // Redis 6.2.14
        (
            "OOM",
            "ERR Error running script (call to f_f072): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
        ),
        (
            "READONLY",
            "ERR Error running script (call to f_f072): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
        ),
        (
            "NOREPLICAS",
            "ERR Error running script (call to f_f072): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas to write.",
        ),
        (
            "MISCONF",
            "ERR Error running script (call to f_f072): @user_script:1: @user_script: 1: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
        ),
        (
            "NOPERM",
            "ERR Error running script (call to f_f072): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
        ),
        (
            "NOPERM",
            "ERR Error running script (call to f_d7fa): @user_script:1: @user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments",
        ),
        ("NOPERM", "@user_script: 1: The user executing the script can't run this command or subcommand"),
        ("NOPERM", "NOPERM this user has no permissions to run the 'set' command or its subcommand"),
        ("MASTERDOWN", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
        ("ERR", "ERR Error running script (call to f_8290): @user_script:1: user_script:1: boom"),
        // Redis 7.0.15
        (
            "READONLY",
            "READONLY You can't write against a read only replica. script: f072, on @user_script:1.",
        ),
        (
            "NOPERM",
            "ERR The user executing the script can't run this command or subcommand script: f072, on @user_script:1.",
        ),
        // Valkey 8.1.8 and 9.1.2; the second as Redis 7.2 and later, too
        ("OOM", "OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:1."),
        (
            "NOPERM",
            "ERR ACL failure in script: User app has no permissions to run the 'set' command script: f072, on @user_script:1.",
        ),
        ("NOPERM", "ERR ACL failure in script: No permissions to access a key script: on @user_script:1."),
        ("NOPERM", "NOPERM User app has no permissions to run the 'set' command"),
        ("NOREPLICAS", "NOREPLICAS Not enough good replicas to write. script: on @user_script:1."),
        (
            "WRONGTYPE",
            "WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:1.",
        ),
        ("ERR", "ERR user_script:1: boom script: on @user_script:1."),
        // Redis 6.2.14, from a script that returns the error as its reply
        ("READONLY", "@user_script: 1: -READONLY You can't write against a read only replica."),
    ];

    /// Redis 6.2 writes a dash before the code, so the connection to a replica was never replaced.
    #[test]
    fn the_code_of_an_error_is_found_in_the_texts_of_all_servers() {
        for (expected, line) in SEEN {
            assert_eq!(code(&error(line)), Some(expected), "{line}");
        }
    }

    #[test]
    fn a_connection_to_a_replica_is_replaced_whatever_the_version() {
        for (code, line) in SEEN {
            let expected =
                if matches!(code, "READONLY" | "MASTERDOWN") { Remedy::Replace } else { Remedy::Keep };
            assert_eq!(remedy(&error(line)), expected, "{line}");
        }
    }
}
