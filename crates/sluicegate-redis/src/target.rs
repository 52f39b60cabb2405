//! Where Redis is: one server, a Sentinel group, a Cluster, or a connection that the application brings.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, SendError};
use redis::cluster::ClusterClientBuilder;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisError, RedisFuture, Value,
};
use sluicegate_core::{ConfigError, ConfigErrorKind};

use crate::link::Connection;
use crate::tls::Tls;

type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn Connection>, RedisError>> + Send>>;

/// Where Redis is.
#[derive(Clone)]
pub(crate) enum Target {
    Standalone {
        info: Box<ConnectionInfo>,
        tls: Tls,
    },
    Sentinel {
        sentinels: Vec<ConnectionAddr>,
        master: String,
        info: Box<ConnectionInfo>,
        tls: Tls,
    },
    Cluster {
        nodes: Vec<ConnectionInfo>,
        tls: Tls,
    },
    Given(Arc<dyn Fn() -> Connecting + Send + Sync>),
    #[cfg(feature = "deadpool")]
    Pool {
        pool: Arc<dyn Connection>,
        is_cluster: bool,
    },
}

impl Target {
    /// Reads a URL; see [`RedisStore::connect`](crate::RedisStore::connect) for the forms.
    pub(crate) fn parse(url: &str, tls: Tls) -> Result<Self, ConfigError> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| refused(url, "there is no \"://\" in it"))?;
        if scheme.starts_with("rediss") && info("rediss://localhost", url).is_ok() {
            tls.check()?;
        }
        match scheme {
            "redis" | "rediss" => Ok(Self::Standalone { info: Box::new(info(url, url)?), tls }),
            "redis+cluster" | "rediss+cluster" => {
                let plain = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
                let (login, hosts, _) = split(rest);
                let nodes = hosts.split(',').map(|host| info(&format!("{plain}://{login}{host}"), url));
                Ok(Self::Cluster { nodes: nodes.collect::<Result<_, _>>()?, tls })
            }
            "redis+sentinel" | "rediss+sentinel" => {
                let plain = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
                let (login, hosts, path) = split(rest);
                let (master, db) = path.split_once('/').unwrap_or((path, "0"));
                if master.is_empty() {
                    return Err(refused(url, "the name of the master is missing behind the sentinels"));
                }
                let sentinels = hosts.split(',').map(|host| {
                    let host = if has_port(host) { host.to_owned() } else { format!("{host}:26379") };
                    Ok(info(&format!("redis://{host}"), url)?.addr().clone())
                });
                let sentinels = sentinels.collect::<Result<_, ConfigError>>()?;
                let info = Box::new(info(&format!("{plain}://{login}localhost/{db}"), url)?);
                Ok(Self::Sentinel { sentinels, master: master.to_owned(), info, tls })
            }
            _ => Err(refused(url, "its scheme is not one of redis, rediss, redis+sentinel, redis+cluster")),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        match self {
            Self::Cluster { .. } => true,
            #[cfg(feature = "deadpool")]
            Self::Pool { is_cluster, .. } => *is_cluster,
            _ => false,
        }
    }

    /// How long it may take to connect. Sentinels are asked one after the other, and some may hang; of a cluster, one
    /// node may.
    pub(crate) fn connects_within(&self) -> Duration {
        let seconds = match self {
            Self::Standalone { .. } | Self::Given(_) => 1,
            Self::Sentinel { sentinels, .. } => 1 + sentinels.len() as u64,
            Self::Cluster { .. } => 3,
            #[cfg(feature = "deadpool")]
            Self::Pool { .. } => 3,
        };
        Duration::from_secs(seconds)
    }

    /// Makes a new connection. The caller bounds the time.
    ///
    /// With RESP3 the client says when the peer has closed it, although nobody is using it: a server's `timeout`, a proxy.
    /// What cannot speak it is spoken to in RESP2; then the first request after that finds out, and fails.
    pub(crate) async fn connect(&self, closed: Closed) -> Result<Arc<dyn Connection>, RedisError> {
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
        match self {
            Self::Standalone { info, tls } => {
                let redis = info.redis_settings().clone().set_protocol(protocol);
                let client = tls.client((**info).clone().set_redis_settings(redis))?;
                Ok(Arc::new(Shared(client.get_multiplexed_async_connection_with_config(&config).await?)))
            }
            Self::Sentinel { sentinels, master, info, tls } => {
                let mut client = tls.of_master(sentinel(sentinels, master, info, protocol)?).build()?;
                // It asks the sentinels anew, and checks by ROLE that what they name is a master.
                Ok(Arc::new(Shared(client.get_async_connection_with_config(&config).await?)))
            }
            Self::Cluster { nodes, tls } => {
                // A call that is sent again may be charged twice, so the client gets one retry, and no long waits. With
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
                Ok(Arc::new(Shared(client.get_async_connection().await?)))
            }
            Self::Given(connect) => connect().await,
            // It connects when it is asked for a connection.
            #[cfg(feature = "deadpool")]
            Self::Pool { pool, .. } => Ok(Arc::clone(pool)),
        }
    }

    /// A connection that the application makes.
    pub(crate) fn given<C, F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
        F: Future<Output = Result<C, RedisError>> + Send + 'static,
    {
        Self::Given(Arc::new(move || {
            let connecting = connect();
            Box::pin(async move { Ok(Arc::new(Shared(connecting.await?)) as Arc<dyn Connection>) })
        }))
    }
}

/// Told once when the peer has closed a connection.
#[derive(Clone)]
pub(crate) struct Closed(Arc<dyn Fn() + Send + Sync>);

impl Closed {
    pub(crate) fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    fn heard(&self, push: &PushInfo) -> Result<(), SendError> {
        if push.kind == PushKind::Disconnection {
            (self.0)();
        }
        Ok(())
    }
}

/// Redis before 6 and some proxies do not know `HELLO`, or not with a 3 behind it.
fn knows_resp2_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.detail().is_some_and(|detail| detail.to_ascii_lowercase().contains("unknown command"))
}

/// A connection whose clones share one socket.
struct Shared<C>(C);

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for Shared<C> {
    fn send(&self, command: Cmd) -> RedisFuture<'static, Value> {
        let mut connection = self.0.clone();
        // The cluster client hands over what a server refused, `NOSCRIPT` among it, as a value.
        Box::pin(async move { connection.req_packed_command(&command).await?.extract_error() })
    }
}

/// Small packets go at once, and a peer that is gone is noticed within seconds.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(5))
}

fn info(url: &str, shown: &str) -> Result<ConnectionInfo, ConfigError> {
    match url.into_connection_info() {
        Ok(info) => Ok(info.set_tcp_settings(tcp())),
        Err(error) => Err(refused(shown, &error.to_string())),
    }
}

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

/// The colons of an IPv6 address are in its brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':')
}

/// `user:password@`, the hosts, and what comes behind the slash.
fn split(rest: &str) -> (String, &str, &str) {
    let (login, hosts) = rest.rsplit_once('@').map_or((String::new(), rest), |(l, h)| (format!("{l}@"), h));
    let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
    (login, hosts, path)
}

/// An error that shows the URL without the password in it.
fn refused(url: &str, problem: &str) -> ConfigError {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let shown = match rest.rsplit_once('@') {
        Some((_, hosts)) => format!("***@{hosts}"),
        // Where the host was forgotten, the password stands in the place of the port.
        None => match rest.split_once(':') {
            Some((_, port)) if !port.starts_with(|c: char| c.is_ascii_digit()) => "***".to_owned(),
            _ => rest.to_owned(),
        },
    };
    let shown = if scheme.is_empty() { shown } else { format!("{scheme}://{shown}") };
    ConfigError::new(
        ConfigErrorKind::Store,
        format!(
            "{shown:?} is not the URL of a Redis: {problem}; write redis://host:6379/0, rediss://user:password@host, redis+sentinel://host:26379,host:26379/master or redis+cluster://host:7000,host:7001"
        ),
    )
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standalone { info, .. } => info.addr().fmt(f),
            Self::Sentinel { master, sentinels, .. } => {
                write!(f, "master {master} of {} sentinels", sentinels.len())
            }
            Self::Cluster { nodes, .. } => write!(f, "cluster of {} known nodes", nodes.len()),
            Self::Given(_) => f.write_str("the application's own connection"),
            #[cfg(feature = "deadpool")]
            Self::Pool { .. } => f.write_str("the application's own pool"),
        }
    }
}

const _: fn() = || {
    fn shared<C: ConnectionLike + Clone + Send + Sync>() {}
    shared::<MultiplexedConnection>();
};

#[cfg(test)]
mod tests {
    use super::*;

    fn message(url: &str) -> String {
        match Target::parse(url, Tls::default()) {
            Ok(target) => panic!("{url} is taken for {target}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_kind_of_deployment_has_a_url() {
        for (url, shown) in [
            ("redis://localhost", "localhost:6379"),
            ("redis://ada:secret@10.0.0.1:7000/3", "10.0.0.1:7000"),
            ("redis+sentinel://a,b:7000/main", "master main of 2 sentinels"),
            ("redis+sentinel://[::1],[::1]:7000/main", "master main of 2 sentinels"),
            ("redis+sentinel://ada:secret@a,b,c/main/2", "master main of 3 sentinels"),
            ("redis+cluster://a:7000", "cluster of 1 known nodes"),
            ("redis+cluster://ada:secret@a:7000,b:7001", "cluster of 2 known nodes"),
        ] {
            let target = Target::parse(url, Tls::default()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(target.to_string(), shown);
        }
    }

    #[test]
    fn sentinels_are_asked_at_their_own_port_and_the_master_gets_the_login() {
        let Ok(Target::Sentinel { sentinels, info, .. }) =
            Target::parse("redis+sentinel://ada:secret@a,b:7000/main/2", Tls::default())
        else {
            panic!("it is a Sentinel URL");
        };
        assert_eq!(sentinels.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:26379", "b:7000"]);
        let Ok(Target::Sentinel { sentinels: of_v6, .. }) =
            Target::parse("redis+sentinel://[::1],[::1]:7000/main", Tls::default())
        else {
            panic!("it is a Sentinel URL");
        };
        let port = |at: &ConnectionAddr| match at {
            ConnectionAddr::Tcp(_, port) => *port,
            other => panic!("{other}"),
        };
        assert_eq!(of_v6.iter().map(port).collect::<Vec<_>>(), [26_379, 7_000]);
        let redis = info.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("ada"), Some("secret"), 2));
    }

    /// In the background, where rustls would panic, nobody could tell what is missing.
    #[cfg(feature = "tls")]
    #[test]
    fn tls_without_a_crypto_provider_is_refused_before_anybody_connects() {
        for url in ["rediss://localhost", "rediss+cluster://a:7000", "rediss+sentinel://a/main"] {
            let message = message(url);
            assert!(message.contains("no rustls crypto provider is installed: call"), "{message}");
        }
    }

    #[test]
    fn a_refused_url_says_what_would_be_accepted_and_hides_the_password() {
        for url in [
            "ada:hunter2@localhost:6379",
            "http://ada:hunter2@localhost",
            "redis://ada:hunter2@local host:99999",
            "redis://ada:hunter2@localhost:99999",
            "redis://ada:hunter2@localhost/database",
            "redis://ada:hunter2",
            "redis+sentinel://ada:hunter2@a,b",
            "redis+sentinel://ada:hunter2@a,b/main/x",
            "redis+cluster://ada:hunter2@a:7000,b:x",
            "redis+cluster://ada:hunter2@",
            "redis+cluster://ada:hunter2@a@b:x",
        ] {
            let message = message(url);
            assert!(!message.contains("hunter2"), "{message}");
            assert!(message.contains("write redis://host:6379/0"), "{message}");
        }
        assert!(message("http://localhost").contains("http"), "what is not secret is shown");
    }
}
