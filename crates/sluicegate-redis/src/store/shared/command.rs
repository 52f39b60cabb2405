//! The script that reads and writes the shared bytes.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::connection::ScriptName;
use crate::store::key;
use crate::store::slot::Script;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("shared.lua")));

/// The extra lifetime of keys, because the store's injected clock and the server's, by which keys expire, may differ.
const SLACK: Duration = Duration::from_secs(60);

/// The longest expiry, a hundred years: Redis refuses an expiry that does not fit into 63 bits of milliseconds.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The value to write.
pub(super) struct Writing {
    pub(super) over: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    pub(super) keep: Duration,
}

/// The call that writes, or only reads.
pub(super) fn command(script: ScriptName, name: &str, write: Option<&Writing>) -> Cmd {
    let mut cmd = SCRIPT.command(script, &[name], &[]);
    if let Some(Writing { over, bytes, keep }) = write {
        let keep_ms = keep.saturating_add(SLACK).min(LONGEST).as_millis();
        let keep_ms = u64::try_from(keep_ms).unwrap_or(u64::MAX);
        cmd.arg(&**over).arg(&**bytes).arg(keep_ms);
    }
    cmd
}

/// The script's reply: the server's time in microseconds, and the stored value. `None` for any other reply.
pub(super) fn read(reply: &Value) -> Option<(u64, &[u8])> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros), Value::BulkString(there)] = &**parts else {
        return None;
    };
    let number = |digits: &[u8]| str::from_utf8(digits).ok()?.parse::<u64>().ok();
    Some((number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?, there))
}

/// The name of the shared bytes, which no policy has. It is in the slot that probes a connection, so that no other node of a
/// Cluster has to be up.
pub(super) fn name(prefix: &str) -> String {
    format!("{prefix}:3:{{{}}}:overrides", key::PROBE)
}

#[cfg(test)]
mod tests {
    use redis::Arg;

    use super::*;

    /// A time close to the longest `Duration` once stopped the process.
    #[test]
    fn a_value_that_is_kept_for_ever_is_kept_for_a_hundred_years() {
        for (keep, keep_ms) in [
            (Duration::ZERO, "60000"),
            (Duration::from_secs(3_600), "3660000"),
            (Duration::MAX, "3153600000000"),
        ] {
            let writing = Writing { over: Vec::new(), bytes: Vec::new(), keep };
            let command = command(ScriptName::Digest, "rl", Some(&writing));
            let last = command.args_iter().last();
            assert!(matches!(last, Some(Arg::Simple(text)) if text == keep_ms.as_bytes()), "{keep:?}");
        }
    }
}
