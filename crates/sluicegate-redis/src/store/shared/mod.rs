//! The bytes that instances share, for overrides of operators: one key, read every few seconds, and whenever a connection is new.

mod command;
mod seal;
mod value;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Listener, Shared, SharedFuture, Write};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use self::command::{Writing, command, name};
use self::value::SharedValue;
use super::key;
use crate::connection::{ConnectionState, Probe, part_of};

/// The interval of reading, so that every instance knows within five seconds what another one has written.
const EVERY: Duration = Duration::from_secs(4);

/// The pause after a failed read.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest time that a call may take; no request waits for it.
const DEADLINE: Duration = Duration::from_secs(1);

/// The key of the shared bytes, and the task that reads it.
pub(super) struct SharedKey {
    client: SharedKeyClient,
    runtime: Handle,
    reader: AbortHandle,
}

/// Reads and writes the shared bytes; clones share them.
#[derive(Clone)]
struct SharedKeyClient {
    name: Arc<str>,
    value: Arc<SharedValue>,
    connection: Arc<ConnectionState>,
}

impl SharedKey {
    /// Begins to read every few seconds, until it is dropped.
    pub(super) fn start(
        prefix: &str,
        value: Arc<SharedValue>,
        connection: Arc<ConnectionState>,
        runtime: Handle,
    ) -> Self {
        let client = SharedKeyClient { name: Arc::from(name(prefix)), value, connection };
        let reader = runtime.spawn(look(client.clone())).abort_handle();
        Self { client, runtime, reader }
    }

    /// Adds a step to the probe: every new connection reads the shared bytes before it is used.
    pub(super) fn read_by(probe: &mut Probe, prefix: &str, secret: &[u8]) -> Arc<SharedValue> {
        let value = Arc::new(SharedValue::new(secret));
        value.read_by(probe, prefix);
        value
    }

    /// The time of the server's clock, estimated from its last answer.
    pub(super) fn now_us(&self) -> u64 {
        self.client.value.now_us()
    }

    /// Tells a listener the current value, and adds it for later values.
    pub(super) fn listen(&self, listener: Arc<dyn Listener>) {
        self.client.value.listen(listener);
    }
}

impl Drop for SharedKey {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shared for SharedKey {
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture {
        let write = write.map(|write| Writing {
            over: self.client.value.sealed(write.over),
            bytes: self.client.value.sealed(write.bytes),
            keep: write.keep,
        });
        let client = self.client.clone();
        // In a task, so that it finishes even if the caller has gone.
        let call = self.runtime.spawn(async move { client.call(write).await });
        Box::pin(async { call.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable))) })
    }
}

impl SharedKeyClient {
    async fn call(&self, write: Option<Writing>) -> Result<Arc<[u8]>, StoreError> {
        let part = part_of(key::slot(key::PROBE));
        let command = |script| command(script, &self.name, write.as_ref());
        let reply = self.connection.send(part, command, Instant::now() + DEADLINE).await?;
        self.value.note(&reply).ok_or_else(|| StoreError::new(StoreErrorKind::Protocol))
    }
}

async fn look(client: SharedKeyClient) {
    let mut pause = EVERY;
    loop {
        sleep(pause).await;
        // A new connection has read the bytes.
        pause = if client.call(None).await.is_ok() { EVERY } else { AGAIN };
    }
}
