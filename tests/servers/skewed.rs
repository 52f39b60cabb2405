//! A server whose clock is not the machine's.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::path::PathBuf;
use std::process::Command;

use crate::servers::Server;

/// A server whose clock can be shifted while it runs.
pub(crate) struct Skewed {
    pub(crate) server: Server,
    skew: PathBuf,
}

impl Skewed {
    pub(crate) fn start() -> Self {
        let mut skewed = Self::reserve();
        skewed.server.restart();
        skewed
    }

    /// The clock alone; the server is not started.
    pub(crate) fn reserve() -> Self {
        let mut server = Server::reserve(&[]);
        let (shim, skew) = (server.folder().join("skew.so"), server.folder().join("skew"));
        std::fs::create_dir_all(server.folder()).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/skew.c");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(source).status();
        assert!(compiled.expect("who builds Rust has a C linker").success());
        std::fs::write(&skew, [0; 8]).unwrap();
        server.set_environment([("LD_PRELOAD", shim), ("SKEW_FILE", skew.clone())]);
        Self { server, skew }
    }

    /// Runs one test of this program in a process of its own, under this clock.
    pub(crate) fn run_in_child(&self, test: &str) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([test, "--exact", "--nocapture"]).env("LD_PRELOAD", self.server.folder().join("skew.so"));
        let output = child.env("SKEW_FILE", &self.skew).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    pub(crate) fn shift(&self, by_us: i64) {
        // In place: the server has the file mapped.
        let mut file = std::fs::OpenOptions::new().write(true).open(&self.skew).unwrap();
        std::io::Write::write_all(&mut file, &by_us.to_ne_bytes()).unwrap();
    }
}
