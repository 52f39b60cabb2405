//! Connections to each server that has keys: [`ServerConnection`].
//!
//! They are separate from the store's own connection. A look at all keys opens them, and they close at its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, RedisError, Value, from_redis_value};
use sluicegate_core::StoreError;
use tokio::time::timeout;

use super::{Closed, Connection, Deployment, Target};
use crate::connection::failure::store_error;

/// The longest time that a server may take to connect, and to answer one command.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct ServerConnection(Arc<dyn Connection>);

impl ServerConnection {
    /// Connects to all servers that have keys: the primaries of a Cluster, and otherwise the one server.
    ///
    /// # Errors
    /// When one of them cannot be reached within 5 s.
    pub(crate) async fn each(target: &Target) -> Result<Vec<Self>, StoreError> {
        match &target.0 {
            Deployment::Cluster { nodes, tls } => {
                let of = |node: &ConnectionInfo| {
                    Target(Deployment::Standalone { info: Box::new(node.clone()), tls: tls.clone() })
                };
                Self::primaries(nodes, of).await
            }
            _ => Self::connect(target).await.map(|server| vec![server]),
        }
        .map_err(store_error)
    }

    /// The answer to a command that may be sent to any server.
    ///
    /// # Errors
    /// When there is none within 5 s, the server refuses, or the answer is not of this type.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: Cmd) -> Result<T, StoreError> {
        self.answer(command).await.map_err(store_error)
    }

    async fn answer<T: FromRedisValue>(&self, command: Cmd) -> Result<T, RedisError> {
        Ok(from_redis_value(answered(self.0.send(command)).await?)?)
    }

    async fn connect(target: &Target) -> Result<Self, RedisError> {
        answered(target.connect(Closed::new(|| ()))).await.map(Self)
    }

    async fn primaries(
        nodes: &[ConnectionInfo],
        of: impl Fn(&ConnectionInfo) -> Target,
    ) -> Result<Vec<Self>, RedisError> {
        let mut slots = Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::NotConnected)));
        for node in nodes {
            slots = async {
                let mut command = redis::cmd("CLUSTER");
                command.arg("SLOTS");
                Ok((node, Self::connect(&of(node)).await?.answer(command).await?))
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
            masters.push(Self::connect(&of(&there)).await?);
        }
        Ok(masters)
    }
}

async fn answered<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    let late = || RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(late()))
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

/// The address of another node, with the same settings. A node that does not know its own name is the one that was asked.
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
