//! The bytes that instances share, for overrides of operators: one key, read every few seconds and at each new connection.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use redis::{Cmd, Value};
use sluicegate_core::StoreError;
use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Event, Listener, Listeners, SharedFuture, Write};
use sluicegate_core::support::lock;
use tokio::time::{Instant, sleep};

use super::client::RedisClient;
use super::key;
use super::slot::Script;
use crate::connection::{ConnectionState, Probe, ScriptName, part_of};

/// The interval of reading, so that every instance knows within five seconds what another one has written.
const EVERY: Duration = Duration::from_secs(4);

/// The pause after a failed read.
const AGAIN: Duration = Duration::from_secs(1);

/// Reads the bytes every few seconds, forever.
pub(super) async fn read_in_turn(value: Arc<SharedValue>, connection: Arc<ConnectionState>) {
    let mut pause = EVERY;
    loop {
        sleep(pause).await;
        // A new connection has read the bytes.
        pause = if value.call(&connection, None).await.is_ok() { EVERY } else { AGAIN };
    }
}

/// The longest time that a call may take; no request waits for it.
const DEADLINE: Duration = Duration::from_secs(1);

/// The value of the latest reply to any call.
pub(super) struct SharedValue {
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
    pub(super) fn read_by(probe: &mut Probe, prefix: &str, secret: &[u8]) -> Arc<Self> {
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
    async fn call(
        &self,
        connection: &ConnectionState,
        write: Option<Writing>,
    ) -> Result<Arc<[u8]>, StoreError> {
        let part = part_of(key::slot(key::PROBE));
        let command = |script| command(script, &self.name, write.as_ref());
        let reply = connection.send(part, command, Instant::now() + DEADLINE).await?;
        self.note(&reply).ok_or_else(|| StoreError::new(StoreErrorKind::Protocol))
    }

    /// Writes the bytes, or only reads them, in a task, so that it finishes even if the caller has left.
    pub(super) fn exchange(self: &Arc<Self>, client: &RedisClient, write: Option<Write<'_>>) -> SharedFuture {
        let write = write.map(|write| Writing {
            over: self.sealed(write.over),
            bytes: self.sealed(write.bytes),
            keep: write.keep,
        });
        let (value, connection) = (Arc::clone(self), Arc::clone(&client.connection));
        let runtime = client.runtime();
        let call = runtime.map(|runtime| runtime.spawn(async move { value.call(&connection, write).await }));
        Box::pin(async { call?.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable))) })
    }

    /// The time of the server's clock, estimated from its last answer.
    pub(super) fn now_us(&self) -> u64 {
        // Relaxed: one number, which orders nothing else.
        self.machine.now_us().saturating_add_signed(self.ahead_us.load(Ordering::Relaxed))
    }

    /// The form in which Redis has these bytes, if it has them.
    fn sealed(&self, bytes: &[u8]) -> Vec<u8> {
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

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("shared.lua")));

/// The extra lifetime of keys, because the store's injected clock and the server's, by which keys expire, may differ.
const SLACK: Duration = Duration::from_secs(60);

/// The longest expiry, a hundred years: Redis refuses an expiry that does not fit into 63 bits of milliseconds.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The value to write.
struct Writing {
    over: Vec<u8>,
    bytes: Vec<u8>,
    keep: Duration,
}

/// The call that writes, or only reads.
fn command(script: ScriptName, name: &str, write: Option<&Writing>) -> Cmd {
    let mut cmd = SCRIPT.command(script, &[name], &[]);
    if let Some(Writing { over, bytes, keep }) = write {
        let keep_ms = keep.saturating_add(SLACK).min(LONGEST).as_millis();
        let keep_ms = u64::try_from(keep_ms).unwrap_or(u64::MAX);
        cmd.arg(&**over).arg(&**bytes).arg(keep_ms);
    }
    cmd
}

/// The script's reply: the server's time in microseconds, and the stored value. `None` for any other reply.
fn read(reply: &Value) -> Option<(u64, &[u8])> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros), Value::BulkString(there)] = &**parts else {
        return None;
    };
    let number = |digits: &[u8]| str::from_utf8(digits).ok()?.parse::<u64>().ok();
    Some((number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?, there))
}

/// The name of the shared bytes, which no policy has. It is in the slot that probes a connection, so that no other node of a
/// Cluster has to be up.
fn name(prefix: &str) -> String {
    format!("{prefix}:3:{{{}}}:overrides", key::PROBE)
}

/// Bytes of a nonce of XChaCha20.
const NONCE: usize = 24;

/// XChaCha20-Poly1305, keyed with the fleet's secret.
///
/// The nonce is a keyed hash of the bytes, as in RFC 5297: equal bytes are sealed alike, so that the script can compare them.
struct SharedSeal {
    cipher: XChaCha20Poly1305,
    nonces: [u8; 32],
}

impl SharedSeal {
    fn new(secret: &[u8]) -> Self {
        let key = blake3::derive_key("sluicegate 2026-11-26 shared bytes: encryption", secret);
        let nonces = blake3::derive_key("sluicegate 2026-11-26 shared bytes: nonces", secret);
        Self { cipher: XChaCha20Poly1305::new(&Key::from(key)), nonces }
    }

    /// The form in which the bytes are stored. Empty bytes stay empty.
    fn seal(&self, bytes: &[u8]) -> Vec<u8> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(&blake3::keyed_hash(&self.nonces, bytes).as_bytes()[..NONCE]);
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), bytes);
        [&nonce[..], &sealed.expect("no value of Redis is as long as 256 GiB")].concat()
    }

    /// The bytes; empty if they were not sealed with this secret.
    fn open(&self, sealed: &[u8]) -> Vec<u8> {
        let opened = sealed.split_first_chunk::<NONCE>().and_then(|(nonce, sealed)| {
            let nonce = XNonce::from(*nonce);
            self.cipher.decrypt(&nonce, sealed).ok()
        });
        opened.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use redis::Arg;

    use super::*;

    /// A time close to the longest `Duration` once stopped the process.
    #[test]
    fn a_value_that_is_kept_for_ever_is_kept_for_a_hundred_years() {
        for (keep, keep_ms) in [
            (Duration::ZERO, "60000"),
            (Duration::from_secs(3_600), "3660000"),
            (Duration::MAX, "3153600000000"),
        ] {
            let writing = Writing { over: Vec::new(), bytes: Vec::new(), keep };
            let command = command(ScriptName::Digest, "rl", Some(&writing));
            let last = command.args_iter().last();
            assert!(matches!(last, Some(Arg::Simple(text)) if text == keep_ms.as_bytes()), "{keep:?}");
        }
    }

    #[test]
    fn bytes_are_sealed_alike_and_opened_with_their_secret_only() {
        let (seal, other) = (SharedSeal::new(b"of the fleet"), SharedSeal::new(b""));
        let sealed = seal.seal(b"1\tlogin\tada");
        assert_eq!(sealed, SharedSeal::new(b"of the fleet").seal(b"1\tlogin\tada"));
        assert!(!sealed.windows(5).any(|part| part == b"login"));
        assert_eq!((seal.open(&sealed), other.open(&sealed)), (b"1\tlogin\tada".to_vec(), Vec::new()));
        assert_eq!((seal.seal(b""), seal.open(b""), seal.open(b"garbage")), (vec![], vec![], vec![]));
        let mut changed = sealed;
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(seal.open(&changed), Vec::<u8>::new());
    }
}
