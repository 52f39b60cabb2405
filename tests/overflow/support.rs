//! Queues of deferred jobs on servers of their own.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Request;
use sluicegate::RedisStore;
use sluicegate_tests::servers::Server;

use crate::deferred_example::queue::{Queue, Settings};
use crate::deferred_example::seal::Seal;

pub(crate) const SECRET: &str = "a secret of sixteen bytes, or more";

/// A server that persists, in a folder that outlives its kills.
pub(crate) struct Persistent {
    pub(crate) server: Server,
    pub(crate) folder: PathBuf,
}

impl Persistent {
    pub(crate) fn start(fsync: &str) -> Self {
        let name =
            format!("sluicegate-deferred-{}-{}", std::process::id(), sluicegate_tests::servers::free_port());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let dir = folder.to_str().unwrap();
        let server = Server::start_with(&["--dir", dir, "--appendonly", "yes", "--appendfsync", fsync]);
        Self { server, folder }
    }

    /// All that it has written: each command, as it came.
    pub(crate) fn written(&self) -> Vec<u8> {
        let (mut folders, mut bytes) = (vec![self.folder.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() { folders.push(entry) } else { bytes.extend(fs::read(entry).unwrap()) }
            }
        }
        bytes
    }
}

impl Drop for Persistent {
    fn drop(&mut self) {
        self.server.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) async fn store(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).connect(url).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    store
}

/// A queue with these settings, whose jobs are encrypted.
pub(crate) async fn queue(server: &Server, settings: Settings) -> Arc<Queue> {
    let seal = Seal::with_secret(SECRET).unwrap();
    Arc::new(Queue::new(&store(&server.url()).await, "orders", seal, settings).unwrap())
}

pub(crate) fn order(body: &str) -> Request<Bytes> {
    Request::post("/orders").body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// By the clock that all processes of the machine share.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}
