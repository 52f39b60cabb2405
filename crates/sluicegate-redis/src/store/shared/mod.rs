//! The bytes that instances share, for overrides of operators: one key, read every few seconds and at each new connection.

mod command;
mod seal;
mod value;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Listener, Shared, SharedFuture, Write};
use tokio::time::sleep;

use self::command::Writing;
pub(super) use self::value::SharedValue;
use super::client::RedisClient;
use crate::connection::ConnectionState;

/// The interval of reading, so that every instance knows within five seconds what another one has written.
const EVERY: Duration = Duration::from_secs(4);

/// The pause after a failed read.
const AGAIN: Duration = Duration::from_secs(1);

/// The key of the shared bytes.
pub(super) struct SharedKey {
    value: Arc<SharedValue>,
    client: Arc<RedisClient>,
}

impl SharedKey {
    pub(super) fn new(value: Arc<SharedValue>, client: Arc<RedisClient>) -> Self {
        Self { value, client }
    }

    /// The time of the server's clock, estimated from its last answer.
    pub(super) fn now_us(&self) -> u64 {
        self.value.now_us()
    }

    /// Notifies a listener of the current value, and adds it for later values.
    pub(super) fn listen(&self, listener: Arc<dyn Listener>) {
        self.value.listen(listener);
    }
}

impl Shared for SharedKey {
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture {
        let write = write.map(|write| Writing {
            over: self.value.sealed(write.over),
            bytes: self.value.sealed(write.bytes),
            keep: write.keep,
        });
        let (value, connection) = (Arc::clone(&self.value), Arc::clone(&self.client.connection));
        // In a task, so that it finishes even if the caller has left.
        let runtime = self.client.runtime();
        let call = runtime.map(|runtime| runtime.spawn(async move { value.call(&connection, write).await }));
        Box::pin(async { call?.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable))) })
    }
}

/// Reads the bytes every few seconds, forever.
pub(super) async fn read_in_turn(value: Arc<SharedValue>, connection: Arc<ConnectionState>) {
    let mut pause = EVERY;
    loop {
        sleep(pause).await;
        // A new connection has read the bytes.
        pause = if value.call(&connection, None).await.is_ok() { EVERY } else { AGAIN };
    }
}
