//! A server whose clock is not the machine's.

use std::path::PathBuf;
use std::process::Command;

use super::Server;
use crate::process::run_again;

/// A server whose clock can be shifted while it runs.
pub struct Skewed {
    /// The server itself.
    pub server: Server,
    skew: PathBuf,
}

impl Skewed {
    /// A server that runs, whose clock is right for now.
    pub fn start() -> Self {
        let mut skewed = Self::reserve();
        skewed.server.restart();
        skewed
    }

    /// The clock alone; the server is not started.
    pub fn reserve() -> Self {
        let mut server = Server::reserve(&[]);
        let (shim, skew) = (server.folder().join("skew.so"), server.folder().join("skew"));
        std::fs::create_dir_all(server.folder()).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/servers/skew.c");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(source).status();
        assert!(compiled.expect("who builds Rust has a C linker").success());
        std::fs::write(&skew, [0; 8]).unwrap();
        server.set_environment([("LD_PRELOAD", shim), ("SKEW_FILE", skew.clone())]);
        Self { server, skew }
    }

    /// Runs one test of this program in a process of its own, under this clock.
    pub fn run_in_child(&self, test: &str) {
        let library = self.server.folder().join("skew.so");
        run_again(test, [("LD_PRELOAD", library.as_os_str()), ("SKEW_FILE", self.skew.as_os_str())]);
    }

    /// Sets the clock off by that much; it is not the sum of all shifts.
    pub fn shift(&self, by_us: i64) {
        // In place: the server has the file mapped.
        let mut file = std::fs::OpenOptions::new().write(true).open(&self.skew).unwrap();
        std::io::Write::write_all(&mut file, &by_us.to_ne_bytes()).unwrap();
    }
}
