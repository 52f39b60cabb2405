//! The keys that are in Redis, by policy: [`RedisStore::inspect`](crate::RedisStore::inspect).

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate_core::StoreError;
use tokio::task::JoinSet;

use super::key;
use crate::connection::{ServerConnection, Target};

/// The number of keys in one step of a scan, and the number of commands about them that run at once.
const STEP: usize = 1_000;

/// The keys of one policy in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyKeys {
    /// The name of the policy.
    pub policy: String,
    /// The number of its keys.
    pub keys: u64,
    /// The memory that the keys take, in bytes: names, values and expiries.
    pub bytes: u64,
    /// The longest time that one of the keys has been idle, in whole seconds; `None` if the server evicts by frequency
    /// and does not track idle times.
    pub idle: Option<Duration>,
}

/// Looks at all keys of a prefix, on each server that has some.
pub(super) async fn inspect(target: &Target, prefix: &str) -> Result<Vec<PolicyKeys>, StoreError> {
    let mut found = BTreeMap::new();
    for server in ServerConnection::each(target).await? {
        scan(&server, prefix, &mut found).await?;
    }
    Ok(found.into_values().collect())
}

async fn scan(
    server: &ServerConnection,
    prefix: &str,
    found: &mut BTreeMap<String, PolicyKeys>,
) -> Result<(), StoreError> {
    let (mut cursor, pattern) = (0_u64, format!("{}*", key::all(prefix)));
    loop {
        let mut step = redis::cmd("SCAN");
        step.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
        let names: Vec<String>;
        (cursor, names) = server.ask(step).await?;
        let mut looks = JoinSet::new();
        for name in names {
            let Some(policy) = key::policy_of(prefix, &name).map(str::to_owned) else { continue };
            let server = server.clone();
            looks.spawn(async move { (policy, look(&server, &name).await) });
        }
        for (policy, seen) in looks.join_all().await {
            // It may have expired meanwhile.
            let Some((bytes, idle)) = seen? else { continue };
            let of =
                found.entry(policy.clone()).or_insert(PolicyKeys { policy, keys: 0, bytes: 0, idle: None });
            of.keys += 1;
            of.bytes += bytes;
            of.idle = of.idle.max(idle);
        }
        if cursor == 0 {
            return Ok(());
        }
    }
}

/// The memory that a key takes, and the time since it was last used.
async fn look(server: &ServerConnection, name: &str) -> Result<Option<(u64, Option<Duration>)>, StoreError> {
    let [mut memory, mut idle] = [redis::cmd("MEMORY"), redis::cmd("OBJECT")];
    memory.arg("USAGE").arg(name);
    idle.arg("IDLETIME").arg(name);
    let bytes: Option<u64> = server.ask(memory).await?;
    // A server that evicts by frequency refuses this command.
    let idle = server.ask::<Option<u64>>(idle).await.ok();
    Ok(bytes.map(|bytes| (bytes, idle.flatten().map(Duration::from_secs))))
}
