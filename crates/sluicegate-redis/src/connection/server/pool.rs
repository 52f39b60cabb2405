//! Pools of deadpool-redis, for applications that already have one.
//!
//! Without one, the store's own connection is faster: it carries all requests at the same time and
//! needs one round trip for each. See [`RedisStoreBuilder::pool`](crate::RedisStoreBuilder::pool).

use std::sync::Arc;

use deadpool_redis::{PoolError, cluster, sentinel};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, RedisFuture, Value};

use super::{Connection, Deployment, Target};

/// A pool of deadpool-redis: of one server, a Sentinel group or a Cluster.
///
/// ```
/// use sluicegate_redis::{DeadPool, RedisStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = deadpool_redis::Config::from_url("redis://127.0.0.1:6379").create_pool(None)?;
/// let store = RedisStore::builder().pool(DeadPool::from(pool))?;
/// # Ok(())
/// # }
/// ```
///
/// The store's deadline bounds the wait of a request for a connection of the pool, whatever the pool's own
/// timeouts are. The pool replaces connections that fail.
#[derive(Clone)]
pub struct DeadPool {
    connection: Arc<dyn Connection>,
    is_cluster: bool,
}

impl From<DeadPool> for Target {
    fn from(pool: DeadPool) -> Self {
        let DeadPool { connection, is_cluster } = pool;
        Self(Deployment::Pool { pool: connection, is_cluster })
    }
}

sluicegate_core::debug_as!(DeadPool { is_cluster });

/// The three pools have the same methods, but no common trait.
macro_rules! pools {
    ($($pool:ty, $is_cluster:literal;)*) => {$(
        impl From<$pool> for DeadPool {
            fn from(pool: $pool) -> Self {
                Self { connection: Arc::new(pool), is_cluster: $is_cluster }
            }
        }

        impl Connection for $pool {
            fn send(&self, command: Cmd) -> RedisFuture<'static, Value> {
                let pool = self.clone();
                Box::pin(async move {
                    let mut connection = pool.get().await.map_err(redis_error)?;
                    connection.req_packed_command(&command).await?.extract_error()
                })
            }
        }
    )*};
}

pools! {
    deadpool_redis::Pool, false;
    sentinel::Pool, false;
    cluster::Pool, true;
}

fn redis_error(error: PoolError) -> RedisError {
    match error {
        PoolError::Backend(error) => error,
        error @ PoolError::Timeout(_) => {
            std::io::Error::new(std::io::ErrorKind::TimedOut, error.to_string()).into()
        }
        error => (ErrorKind::InvalidClientConfig, "the pool has no connection", error.to_string()).into(),
    }
}
