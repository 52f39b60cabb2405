//! The time that a thread was on a CPU, as the kernel counts it.

use std::path::PathBuf;
use std::sync::mpsc;
use std::{fs, thread};

/// The CPU time of a thread that runs until the process ends.
#[derive(Clone)]
pub(crate) struct CpuTime {
    schedstat: PathBuf,
}

impl CpuTime {
    /// Starts a thread with this work.
    pub(crate) fn of(work: impl FnOnce() + Send + 'static) -> Self {
        let (told, path) = mpsc::channel();
        thread::spawn(move || {
            told.send(fs::read_link("/proc/thread-self").unwrap_or_default()).expect("it is waited for");
            work();
        });
        let path = path.recv().expect("the thread has started");
        Self { schedstat: PathBuf::from("/proc").join(path).join("schedstat") }
    }

    /// Microseconds until now.
    pub(crate) fn us(&self) -> f64 {
        let text = fs::read_to_string(&self.schedstat).unwrap_or_default();
        let nanos: f64 = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(f64::NAN);
        nanos / 1_000.0
    }
}
