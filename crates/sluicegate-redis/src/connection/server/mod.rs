//! The Redis to connect to: one server, a Sentinel group, a Cluster, or a connection that the application
//! supplies.
//!
//! Everything about the redis crate's clients is here: protocols, retries, keepalive. The clients'
//! own timeouts are off, because the callers bound each call and each attempt to connect, in the same way for all
//! clients.

#[cfg(feature = "deadpool")]
mod pool;
mod tls;
mod url;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, SendError};
use redis::cluster::ClusterClientBuilder;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, ProtocolVersion,
    PushInfo, PushKind, RedisError, RedisFuture, Value, from_redis_value,
};
use sluicegate_core::StoreError;
use tokio::time::timeout;

#[cfg(feature = "deadpool")]
pub use self::pool::DeadPool;
pub(crate) use self::tls::TrustedCa;
use super::failure::store_error;

/// A live connection; clones share it.
pub(super) trait Connection: Send + Sync + 'static {
    /// Sends a command and waits for its reply.
    fn send(&self, command: Cmd) -> RedisFuture<'static, Value>;
}

type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn Connection>, RedisError>> + Send>>;

/// The Redis to connect to.
#[derive(Clone)]
pub(crate) struct Target(Deployment);

#[derive(Clone)]
enum Deployment {
    Standalone {
        info: Box<ConnectionInfo>,
        tls: TrustedCa,
    },
    Sentinel {
        sentinels: Vec<ConnectionAddr>,
        master: String,
        info: Box<ConnectionInfo>,
        tls: TrustedCa,
    },
    Cluster {
        nodes: Vec<ConnectionInfo>,
        tls: TrustedCa,
    },
    /// Connections that the application makes, each time anew.
    Given(Arc<dyn Fn() -> Connecting + Send + Sync>),
    #[cfg(feature = "deadpool")]
    Pool {
        pool: Arc<dyn Connection>,
        is_cluster: bool,
    },
}

impl Target {
    pub(crate) fn is_cluster(&self) -> bool {
        match &self.0 {
            Deployment::Cluster { .. } => true,
            #[cfg(feature = "deadpool")]
            Deployment::Pool { is_cluster, .. } => *is_cluster,
            _ => false,
        }
    }

    /// The longest time that connecting may take. Sentinels are asked one after the other, and some may hang; in a cluster,
    /// one node may.
    ///
    /// The bound is the supervisor's. It is longer than the deadline of a request, because no request
    /// waits for it.
    pub(super) fn connects_within(&self) -> Duration {
        let seconds = match &self.0 {
            Deployment::Standalone { .. } | Deployment::Given(_) => 1,
            Deployment::Sentinel { sentinels, .. } => 1 + sentinels.len() as u64,
            Deployment::Cluster { .. } => 3,
            #[cfg(feature = "deadpool")]
            Deployment::Pool { .. } => 3,
        };
        Duration::from_secs(seconds)
    }

    /// Makes a new connection. The caller bounds the time.
    ///
    /// With RESP3 the client reports when the peer closes an unused connection, for example after a server's or a proxy's `timeout`.
    /// A server without RESP3 gets RESP2; then the first request after the close fails.
    pub(super) async fn connect(&self, closed: Closed) -> Result<Arc<dyn Connection>, RedisError> {
        match self.connect_by(ProtocolVersion::RESP3, closed.clone()).await {
            Err(error) if knows_resp2_only(&error) => self.connect_by(ProtocolVersion::RESP2, closed).await,
            result => result,
        }
    }

    async fn connect_by(
        &self,
        protocol: ProtocolVersion,
        closed: Closed,
    ) -> Result<Arc<dyn Connection>, RedisError> {
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if protocol == ProtocolVersion::RESP3 {
            config = config.set_push_sender(move |push| closed.heard(&push));
        }
        match &self.0 {
            Deployment::Standalone { info, tls } => {
                // Without the library's name: a user may lack the right to set it, and Redis logs the refusal.
                let redis = info.redis_settings().clone().set_protocol(protocol).set_skip_set_lib_name();
                let client = tls.client((**info).clone().set_redis_settings(redis))?;
                Ok(Arc::new(Multiplexed(client.get_multiplexed_async_connection_with_config(&config).await?)))
            }
            Deployment::Sentinel { sentinels, master, info, tls } => {
                let mut client = tls.of_master(sentinel(sentinels, master, info, protocol)?).build()?;
                // It asks the sentinels anew, and checks by ROLE that the named server is a master.
                Ok(Arc::new(Multiplexed(client.get_async_connection_with_config(&config).await?)))
            }
            Deployment::Cluster { nodes, tls } => {
                // A repeated call may be charged twice, so the client gets only one retry and no long waits. With
                // RESP3 it replaces by itself the connection to a node that was closed while idle.
                let builder = ClusterClientBuilder::new(nodes.iter().cloned());
                let client = tls
                    .of_cluster(builder)
                    .use_protocol(protocol)
                    .tcp_settings(tcp())
                    .retries(1)
                    .min_retry_wait(2)
                    .max_retry_wait(10)
                    .connection_timeout(Duration::from_millis(500))
                    .build()?;
                Ok(Arc::new(Multiplexed(client.get_async_connection().await?)))
            }
            Deployment::Given(connect) => connect().await,
            // It connects when it is asked for a connection.
            #[cfg(feature = "deadpool")]
            Deployment::Pool { pool, .. } => Ok(Arc::clone(pool)),
        }
    }

    /// A connection that the application makes.
    pub(crate) fn given<C, F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
        F: Future<Output = Result<C, RedisError>> + Send + 'static,
    {
        Self(Deployment::Given(Arc::new(move || {
            let connecting = connect();
            Box::pin(async move { Ok(Arc::new(Multiplexed(connecting.await?)) as Arc<dyn Connection>) })
        })))
    }
}

/// Called once when the peer has closed a connection.
///
/// It names the connection by its number, so that a late call for an old connection does not close a new one.
#[derive(Clone)]
pub(super) struct Closed(Arc<dyn Fn() + Send + Sync>);

impl Closed {
    pub(super) fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    fn heard(&self, push: &PushInfo) -> Result<(), SendError> {
        if push.kind == PushKind::Disconnection {
            (self.0)();
        }
        Ok(())
    }
}

/// Redis before 6 and some proxies do not know `HELLO`, or do not accept version 3.
///
/// Each has another error text.
fn knows_resp2_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.detail().is_some_and(|detail| detail.to_ascii_lowercase().contains("unknown command"))
}

/// A connection whose clones share one socket.
struct Multiplexed<C>(C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for Multiplexed<C> {
    fn send(&self, command: Cmd) -> RedisFuture<'static, Value> {
        let mut connection = self.0.clone();
        // The cluster client returns errors of a server, such as `NOSCRIPT`, as a value.
        Box::pin(async move { connection.req_packed_command(&command).await?.extract_error() })
    }
}

/// Sends small packets at once, and notices within seconds that a peer is gone.
///
/// A NAT or a firewall forgets a flow that is silent for a few minutes, and drops later packets: the first requests after a
/// pause would all be late. So the kernel probes the peer of a silent connection every 15 s, which keeps the flow
/// known, and ends the connection when the peer does not answer.
fn tcp() -> TcpSettings {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive.with_retries(3));
    // Linux then ends a connection after the first probe that is not answered in this time, and not after three.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Deployment::Standalone { info, .. } => info.addr().fmt(f),
            Deployment::Sentinel { master, sentinels, .. } => {
                write!(f, "master {master} of {} sentinels", sentinels.len())
            }
            Deployment::Cluster { nodes, .. } => write!(f, "cluster of {} known nodes", nodes.len()),
            Deployment::Given(_) => f.write_str("the application's own connection"),
            #[cfg(feature = "deadpool")]
            Deployment::Pool { .. } => f.write_str("the application's own pool"),
        }
    }
}

const _: fn() = || {
    fn shared<C: ConnectionLike + Clone + Send + Sync>() {}
    shared::<MultiplexedConnection>();
};

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

/// User, password and database are for the master; sentinels are asked without a login, because the URL has no
/// place for one.
fn sentinel(
    sentinels: &[ConnectionAddr],
    master: &str,
    info: &ConnectionInfo,
    protocol: ProtocolVersion,
) -> Result<SentinelClientBuilder, RedisError> {
    let redis = info.redis_settings();
    let mut builder = SentinelClientBuilder::new(sentinels.to_vec(), master, SentinelServerType::Master)?
        .set_client_to_redis_protocol(protocol)
        .set_client_to_redis_db(redis.db())
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_tcp_settings(tcp());
    if let Some(username) = redis.username() {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = redis.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
    }
    Ok(builder)
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
