//! A server that finds its data again: [`Persistent`].

use std::fs;
use std::path::PathBuf;

use super::{Server, free_port};

/// A server that persists, in a folder that outlives its kills.
pub struct Persistent {
    /// The server, which may be killed and started again.
    pub server: Server,
    folder: PathBuf,
}

impl Persistent {
    /// Starts it; `fsync` is its `appendfsync`.
    pub fn start(fsync: &str) -> Self {
        let name = format!("sluicegate-persistent-{}-{}", std::process::id(), free_port());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let dir = folder.to_str().unwrap();
        let server = Server::start_with(&["--dir", dir, "--appendonly", "yes", "--appendfsync", fsync]);
        Self { server, folder }
    }

    /// All that it has written: each command, as it came.
    #[must_use]
    pub fn written(&self) -> Vec<u8> {
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
