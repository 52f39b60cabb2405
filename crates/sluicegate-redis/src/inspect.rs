//! The keys that are in Redis, by policy: [`RedisStore::inspect`](crate::RedisStore::inspect).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, RedisError, Value, from_redis_value};
use sluicegate_core::StoreError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::failure;
use crate::key;
use crate::server::{Closed, Connection, Target};

/// How long a server may take to connect, and to answer one command.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keys that one step of a scan is to look at, and commands about them that are under way at a time.
const STEP: usize = 1_000;

/// The keys of one policy in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyKeys {
    /// The name of the policy.
    pub policy: String,
    /// How many keys it has.
    pub keys: u64,
    /// Memory that they take: name, value and expiry.
    pub bytes: u64,
    /// How long the key that was not asked for longest has been idle, in whole seconds; `None` where the server evicts by frequency
    /// and does not know it.
    pub idle: Option<Duration>,
}

/// Looks at all keys of a prefix, on each server that has some.
pub(crate) async fn inspect(target: &Target, prefix: &str) -> Result<Vec<PolicyKeys>, StoreError> {
    let mut found = BTreeMap::new();
    for server in target.masters(PATIENCE).await.map_err(failure::store_error)? {
        scan(&server, prefix, &mut found).await.map_err(failure::store_error)?;
    }
    Ok(found.into_values().collect())
}

async fn scan(
    server: &Arc<dyn Connection>,
    prefix: &str,
    found: &mut BTreeMap<String, PolicyKeys>,
) -> Result<(), RedisError> {
    let (mut cursor, pattern) = (0_u64, format!("{}*", key::all(prefix)));
    loop {
        let mut step = redis::cmd("SCAN");
        step.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
        let names: Vec<String>;
        (cursor, names) = from_redis_value(ask(server, step).await?)?;
        let mut looks = JoinSet::new();
        for name in names {
            let Some(policy) = key::policy_of(prefix, &name).map(str::to_owned) else { continue };
            let server = Arc::clone(server);
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

/// How much memory a key takes, and for how long nobody has asked for it.
async fn look(
    server: &Arc<dyn Connection>,
    name: &str,
) -> Result<Option<(u64, Option<Duration>)>, RedisError> {
    let [mut memory, mut idle] = [redis::cmd("MEMORY"), redis::cmd("OBJECT")];
    memory.arg("USAGE").arg(name);
    idle.arg("IDLETIME").arg(name);
    let bytes: Option<u64> = from_redis_value(ask(server, memory).await?)?;
    // A server that evicts by frequency refuses to say it.
    let idle = ask(server, idle).await.ok().and_then(|idle| from_redis_value::<Option<u64>>(idle).ok());
    Ok(bytes.map(|bytes| (bytes, idle.flatten().map(Duration::from_secs))))
}

async fn ask(server: &Arc<dyn Connection>, command: Cmd) -> Result<Value, RedisError> {
    answered(PATIENCE, server.send(command)).await
}

async fn answered<T>(
    within: Duration,
    answer: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let late = || RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    timeout(within, answer).await.unwrap_or_else(|_| Err(late()))
}

impl Target {
    /// A connection to each server that has keys: to all primaries of a Cluster, and otherwise to the one.
    async fn masters(&self, within: Duration) -> Result<Vec<Arc<dyn Connection>>, RedisError> {
        let connect = async |target: &Self| answered(within, target.connect(Closed::new(|| ()))).await;
        let Self::Cluster { nodes, tls } = self else { return Ok(vec![connect(self).await?]) };
        let one = |node: &redis::ConnectionInfo| Self::Standalone {
            info: Box::new(node.clone()),
            tls: tls.clone(),
        };
        let mut slots = Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::NotConnected)));
        for node in nodes {
            slots = async {
                let mut command = redis::cmd("CLUSTER");
                command.arg("SLOTS");
                Ok((node, ask(&connect(&one(node)).await?, command).await?))
            }
            .await;
            if slots.is_ok() {
                break;
            }
        }
        let (node, slots) = slots?;
        let mut masters = Vec::new();
        for (host, port) in primaries(slots)? {
            let there = node.clone().set_addr(moved(node.addr(), host, port));
            masters.push(connect(&one(&there)).await?);
        }
        Ok(masters)
    }
}

/// The primaries that `CLUSTER SLOTS` names, each once: it stands first behind the two ends of a range of slots.
fn primaries(slots: Value) -> Result<BTreeSet<(String, u16)>, RedisError> {
    let ranges: Vec<Vec<Value>> = from_redis_value(slots)?;
    let primary = |range: Vec<Value>| {
        let mut of_primary: Vec<Value> = from_redis_value(range.into_iter().nth(2).unwrap_or(Value::Nil))?;
        of_primary.truncate(2);
        Ok(from_redis_value::<(String, u16)>(Value::Array(of_primary))?)
    };
    ranges.into_iter().map(primary).collect()
}

/// The address of another node, spoken to in the same way. A node that does not know its own name is the one that was asked.
fn moved(from: &ConnectionAddr, to: String, to_port: u16) -> ConnectionAddr {
    let mut there = from.clone();
    if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = &mut there {
        *port = to_port;
        if !to.is_empty() {
            *host = to;
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_primary_of_a_cluster_is_named_once_and_no_replica() {
        let reply = b"*2\r\n*4\r\n:0\r\n:99\r\n*3\r\n$8\r\n10.0.0.1\r\n:7000\r\n$1\r\na\r\n*3\r\n$8\r\n10.0.0.2\r\n:7001\r\n$1\r\nb\r\n\
                      *3\r\n:200\r\n:299\r\n*3\r\n$8\r\n10.0.0.1\r\n:7000\r\n$1\r\na\r\n";
        let reply = redis::parse_redis_value(reply).expect("it is a reply");
        let named = primaries(reply).expect("it names primaries");
        assert_eq!(named.into_iter().collect::<Vec<_>>(), [("10.0.0.1".to_owned(), 7_000)]);
        assert!(primaries(Value::Array(vec![Value::Array(vec![])])).is_err());
    }
}
