//! The last value read, and the server's clock at that time: [`SharedValue`].

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use sluicegate_core::StoreError;
use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Event, Listener, Listeners};
use sluicegate_core::support::lock;
use tokio::time::Instant;

use super::command::{Writing, command, name, read};
use super::seal::SharedSeal;
use crate::connection::{ConnectionState, Probe, ScriptName, part_of};
use crate::store::key;

/// The longest time that a call may take; no request waits for it.
const DEADLINE: Duration = Duration::from_secs(1);

/// The value of the latest reply to any call.
pub(in crate::store) struct SharedValue {
    /// Its name in Redis.
    name: String,
    seal: SharedSeal,
    there: Mutex<SealedBytes>,
    listeners: Listeners,
    machine: SystemClock,
    /// Microseconds by which the server's clock is ahead of the machine's.
    ahead_us: AtomicI64,
}

/// Shared bytes, and the form in which Redis has them.
#[derive(Clone, Default)]
struct SealedBytes {
    bytes: Arc<[u8]>,
    sealed: Vec<u8>,
}

impl SharedValue {
    /// The bytes of this prefix. Every new connection reads them before it is used, so that an instance that starts or was cut off has them
    /// at once.
    pub(in crate::store) fn read_by(probe: &mut Probe, prefix: &str, secret: &[u8]) -> Arc<Self> {
        let value = Arc::new(Self {
            name: name(prefix),
            seal: SharedSeal::new(secret),
            there: Mutex::default(),
            listeners: Listeners::default(),
            machine: SystemClock::new(),
            ahead_us: AtomicI64::new(0),
        });
        let read = Arc::clone(&value);
        probe.step(command(ScriptName::Text, &value.name, None), move |reply| match read.note(reply) {
            Some(_) => Ok(()),
            None => Err("the server does not say what instances share".to_owned()),
        });
        value
    }

    /// Writes the bytes, or only reads them.
    pub(super) async fn call(
        &self,
        connection: &ConnectionState,
        write: Option<Writing>,
    ) -> Result<Arc<[u8]>, StoreError> {
        let part = part_of(key::slot(key::PROBE));
        let command = |script| command(script, &self.name, write.as_ref());
        let reply = connection.send(part, command, Instant::now() + DEADLINE).await?;
        self.note(&reply).ok_or_else(|| StoreError::new(StoreErrorKind::Protocol))
    }

    /// The time of the server's clock, estimated from its last answer.
    pub(super) fn now_us(&self) -> u64 {
        // Relaxed: one number, which orders nothing else.
        self.machine.now_us().saturating_add_signed(self.ahead_us.load(Ordering::Relaxed))
    }

    /// The form in which Redis has these bytes, if it has them.
    pub(super) fn sealed(&self, bytes: &[u8]) -> Vec<u8> {
        let there = self.there();
        // Bytes of others cannot be opened, and count as none.
        if *there.bytes == *bytes { there.sealed } else { self.seal.seal(bytes) }
    }

    /// Stores a reply's bytes and passes them to the listeners; `None` if it is not a valid reply.
    fn note(&self, reply: &Value) -> Option<Arc<[u8]>> {
        let (server_us, sealed) = read(reply)?;
        let ahead_us = i128::from(server_us) - i128::from(self.machine.now_us());
        self.ahead_us.store(i64::try_from(ahead_us).unwrap_or(0), Ordering::Relaxed);
        let bytes: Arc<[u8]> = Arc::from(self.seal.open(sealed));
        let there = SealedBytes { bytes: Arc::clone(&bytes), sealed: sealed.to_vec() };
        *lock(&self.there) = there;
        self.listeners.tell(&Event::Shared(&bytes));
        Some(bytes)
    }

    fn there(&self) -> SealedBytes {
        lock(&self.there).clone()
    }

    /// Notifies a listener of the current value, and adds it for later values.
    pub(super) fn listen(&self, listener: Arc<dyn Listener>) {
        // Added first, so that it also gets a value that is read meanwhile.
        self.listeners.add(Arc::clone(&listener));
        listener.event(&Event::Shared(&self.there().bytes));
    }
}
