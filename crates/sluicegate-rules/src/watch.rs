//! Follows a file: rules are read again when it changes.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::rules::{Rules, RulesState};

/// The interval at which the file is checked without events, as on network file systems.
const POLL: Duration = Duration::from_secs(5);

/// After an event, the file is read when nothing has happened for this long ...
const QUIET: Duration = Duration::from_millis(250);

/// ... but after this long at the latest.
const LONGEST: Duration = Duration::from_secs(1);

impl Rules {
    /// Starts a thread that reads the file again whenever it changes, and that ends with these rules. The changes are logged on one line at
    /// `info`; a mistake in a file is logged once at `error`, and the rules stay in force. Pages get both by
    /// [`listen`](Self::listen).
    ///
    /// The folder of the file is watched, so that a file that is swapped by renaming, or by the symbolic links of Kubernetes, is seen; the
    /// file is also checked every 5 seconds, for network file systems that send no events. After an event the file is read when nothing
    /// has happened for 250 ms, and after a second at the latest, so that a file that is written in parts is read once. An unchanged text
    /// changes nothing and logs nothing. Rules that were not [opened](Self::open) from a file follow nothing.
    ///
    /// ```no_run
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, Variables};
    ///
    /// let rules = Rules::open(&MemoryStore::new(), "rules.yaml", Variables::environment())?;
    /// rules.listen(|news| match news {
    ///     Ok(Some(changes)) => println!("rules: {changes}"),
    ///     Ok(None) => println!("rules: right again"),
    ///     Err(error) => eprintln!("the rules stay as they were:\n{error}"),
    /// });
    /// rules.follow();
    /// # Ok::<(), sluicegate_rules::RulesError>(())
    /// ```
    ///
    /// Call it once: each further call starts another thread that does the same. If no thread can be started, or the folder cannot be
    /// watched, the log says so.
    pub fn follow(&self) {
        let Some(source) = &self.0.source else { return };
        let (tell, told) = channel();
        // If the folder cannot be watched, the file is still checked.
        let watcher = watcher(&source.path, tell.clone());
        let rules = Arc::downgrade(&self.0);
        let run = move || {
            let _watcher = watcher;
            // Kept, so that waiting ends at its time and not because the sender is gone.
            let _tell = tell;
            while wait(&told, &rules) {
                let Some(inner) = rules.upgrade() else { return };
                Self(inner).reload_by_thread(false);
            }
        };
        if let Err(error) = thread::Builder::new().name("sluicegate-rules".to_owned()).spawn(run) {
            self.0.has_failed.store(true, Ordering::Relaxed);
            tracing::error!("the rules file is not followed, for no thread could be started: {error}");
        }
    }
}

fn watcher(path: &Path, tell: Sender<()>) -> Option<RecommendedWatcher> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Reading the file is an event, too.
        let is_read = |kind| matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write));
        if !event.is_ok_and(|event| is_read(event.kind)) {
            _ = tell.send(());
        }
    });
    let watched = watcher.and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watched.map_err(|error| tracing::warn!("the folder of the rules file cannot be watched: {error}")).ok()
}

/// Waits until the file should be checked; returns whether the rules are still in use.
fn wait(told: &Receiver<()>, rules: &Weak<RulesState>) -> bool {
    let first = told.recv_timeout(POLL);
    let began = Instant::now();
    while first.is_ok() && began.elapsed() < LONGEST {
        if told.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    rules.strong_count() > 0
}
