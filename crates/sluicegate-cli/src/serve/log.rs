//! The log on standard error, which neither stops nor delays what is logged: [`LogLines`].
//!
//! A thread writes the lines. If standard error takes none for a while, lines are left out, and their number is logged later. If it cannot be
//! written at all, the lines are lost.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The lines that wait for standard error.
const WAITING: usize = 4_096;

/// The longest wait for the last lines of a process.
const LAST: Duration = Duration::from_secs(1);

/// The way of lines to the thread that writes them.
#[derive(Clone)]
pub(super) struct LogLines {
    lines: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

enum Entry {
    Line(Vec<u8>),
    /// All lines before this were written.
    Written(std::sync::mpsc::Sender<()>),
}

impl LogLines {
    /// Logs events of ours at this level, and errors of other crates: a client can make some of them log a line for each frame.
    pub(super) fn install(level: Level) -> io::Result<Self> {
        let (lines, written) = sync_channel(WAITING);
        let log = Self { lines, lost: Arc::default() };
        let lost = Arc::clone(&log.lost);
        std::thread::Builder::new()
            .name("sluicegate-log".to_owned())
            .spawn(move || write(&written, &lost))?;
        let format = tracing_subscriber::fmt::fmt()
            .with_max_level(level)
            .with_ansi(io::stderr().is_terminal())
            .log_internal_errors(false)
            .with_writer(log.clone());
        let targets = Targets::new().with_target("sluicegate", level).with_default(LevelFilter::ERROR);
        // Nothing else in this process has installed a subscriber.
        _ = format.finish().with(targets).try_init();
        Ok(log)
    }

    /// Waits until the lines so far are written, but not for long.
    pub(super) fn flush(&self) {
        let (tell, told) = channel();
        if self.lines.try_send(Entry::Written(tell)).is_ok() {
            _ = told.recv_timeout(LAST);
        }
    }
}

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Entry::Line(line.to_vec())) {
            // Relaxed: only a number.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn write(entries: &Receiver<Entry>, lost: &AtomicU64) {
    while let Ok(entry) = entries.recv() {
        match entry {
            // There is no other place to say that it failed.
            Entry::Line(line) => _ = io::stderr().write_all(&line),
            Entry::Written(tell) => _ = tell.send(()),
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            _ = writeln!(
                io::stderr(),
                "{lost} lines of the log were left out, because standard error took none"
            );
        }
    }
}
