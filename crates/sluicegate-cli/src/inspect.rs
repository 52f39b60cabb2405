//! `sluicegate inspect`: the keys in a Redis, by policy.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use sluicegate_redis::{PolicyKeys, RedisStore};

use crate::replay::chain;

/// Count the keys of each policy in a Redis, the memory that they take,
/// and the longest idle time of a key.
#[derive(Args)]
pub(crate) struct InspectArguments {
    /// The Redis, such as redis://127.0.0.1:6379 or
    /// redis+cluster://10.0.0.1:7000.
    #[arg(long, value_name = "URL")]
    store: String,
    /// The prefix of the keys.
    #[arg(long, default_value = "rl")]
    prefix: String,
}

/// The table that the command prints.
///
/// # Errors
/// The text of the mistake, or of the server's error.
pub(crate) fn run(asked: &InspectArguments) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("error: {error}"))?;
    let found = runtime.block_on(async {
        let store = RedisStore::builder().prefix(&asked.prefix).connect(&asked.store);
        let store = store.map_err(|error| format!("error: {error}"))?;
        store.inspect().await.map_err(|error| format!("error: {}", chain(&error)))
    })?;
    Ok(table(&found))
}

fn table(found: &[PolicyKeys]) -> String {
    let width = found.iter().map(|of| of.policy.len()).chain([6]).max().unwrap_or(6);
    let mut text = format!("{:<width$}  {:>10}  {:>12}  {:>12}\n", "policy", "keys", "bytes", "idle at most");
    for PolicyKeys { policy, keys, bytes, idle, .. } in found {
        let idle =
            idle.map_or_else(|| "unknown".to_owned(), |idle: Duration| format!("{} s", idle.as_secs()));
        // Writing to a text does not fail.
        _ = writeln!(text, "{policy:<width$}  {keys:>10}  {bytes:>12}  {idle:>12}");
    }
    text
}
