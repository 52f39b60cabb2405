//! The Redis to connect to: one server, a Sentinel group, a Cluster, or a connection that the application
//! supplies.
//!
//! Everything about the redis crate's clients is here: protocols, retries, keepalive. The clients'
//! own timeouts are off, because the callers bound each call and each attempt to connect, in the same way for all
//! clients.

#[cfg(feature = "deadpool")]
mod pool;
mod primaries;
mod sentinel;
mod tls;
mod url;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, SendError};
use redis::cluster::ClusterClientBuilder;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisFuture, Value,
};

#[cfg(feature = "deadpool")]
pub use self::pool::DeadPool;
pub(crate) use self::primaries::ServerConnection;
use self::sentinel::sentinel;
pub(crate) use self::tls::TrustedCa;

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
