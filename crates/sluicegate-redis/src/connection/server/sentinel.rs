//! The client that finds the master of a Sentinel group.

use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError};

use super::tcp;

/// User, password and database are for the master; sentinels are asked without a login, because the URL has no
/// place for one.
pub(super) fn sentinel(
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
