//! Reads the file again and reports the result: in the log, in metrics, and to listeners.
//!
//! A file is checked often but changes rarely, so only news is reported: a file that took effect, a file that is newly or
//! differently wrong, and a file that is valid again.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use sluicegate_core::support::lock;

use crate::changes::Changes;
use crate::error::RulesError;
use crate::file::RulesFile;
use crate::in_force::FileInForce;
use crate::read;
use crate::rules::{Rules, RulesState};
use crate::variables::Variables;

/// The changes that took effect, if there are any, or the mistakes in the file; and whether this is news.
type Reloaded = (Result<Option<Changes>, RulesError>, bool);

impl Rules {
    /// Reads the file again, and puts it in force if its text has changed, or if it was replaced by
    /// [other rules](Self::replace). Returns the changes; `None` if the text is the same, or if these rules were not [opened](Self::open)
    /// from a file.
    ///
    /// ```
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, Variables};
    ///
    /// # let path = std::env::temp_dir().join(format!("sluicegate-reload-{}.yaml", std::process::id()));
    /// # std::fs::write(&path, include_str!("../tests/it/small.yaml"))?;
    /// let rules = Rules::open(&MemoryStore::new(), &path, Variables::environment())?;
    /// assert_eq!(rules.reload()?, None, "the text is the same");
    ///
    /// let text = std::fs::read_to_string(&path)?;
    /// std::fs::write(&path, text.replace("100/min", "50/min"))?;
    /// let changes = rules.reload()?.ok_or("another text")?;
    /// assert_eq!(changes.changed[0].2, "50/min");
    ///
    /// std::fs::write(&path, "")?;
    /// assert!(rules.reload().is_err(), "and fifty a minute stay in force");
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It reads files and may wait for another change to end, so an async program calls it on a thread for blocking work. Files that
    /// the rules name, of API keys and of a public key, are read again as well.
    ///
    /// # Errors
    /// As [`open`](Self::open). The rules in force stay in force, whatever is wrong: a missing or empty file never means that there
    /// are no limits.
    pub fn reload(&self) -> Result<Option<Changes>, RulesError> {
        self.read_again(true).0
    }

    /// Calls `listener` with news from now on: the changes that took effect, `None` if the file is valid again and in force, or
    /// the mistakes in the file, once. A page can show them:
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_rules::{Rules, Variables};
    ///
    /// # let path = std::env::temp_dir().join(format!("sluicegate-listen-{}.yaml", std::process::id()));
    /// # std::fs::write(&path, include_str!("../tests/it/small.yaml"))?;
    /// let rules = Rules::open(&MemoryStore::new(), &path, Variables::environment())?;
    /// let shown = Arc::new(Mutex::new(None));
    /// let page = Arc::clone(&shown);
    /// rules.listen(move |news| {
    ///     // With a status page: `page.notice("rules", error.to_string())` and `page.take_back_notice("rules")`.
    ///     *page.lock().expect("nobody panics here") = news.err().map(ToString::to_string);
    /// });
    ///
    /// std::fs::write(&path, "version: 1\n")?;
    /// assert!(rules.reload().is_err());
    /// assert!(shown.lock().expect("nobody panics here").is_some());
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It is called by the thread that reads the file, in the order of the changes, and must neither reload nor replace these rules; it
    /// may explain requests. Listeners stay as long as the rules. A slow listener delays the next change, but no request.
    pub fn listen(&self, listener: impl Fn(Result<Option<&Changes>, &RulesError>) + Send + Sync + 'static) {
        self.0.listeners.add(listener);
    }

    /// Reads the file again and logs the result. An operator who has asked for it gets an answer even if there is no news.
    pub(crate) fn reload_and_log(&self, is_asked: bool) {
        match self.read_again(is_asked) {
            (Ok(Some(changes)), _) => tracing::info!(target: "sluicegate::audit", "rules: {changes}"),
            (Ok(None), true) => tracing::info!("the rules file is right again, as it is in force"),
            (Err(error), true) => tracing::error!("the rules stay as they were:\n{error}"),
            (Err(_), false) if is_asked => {
                tracing::error!("the rules stay as they were: the file is wrong as before");
            }
            (Ok(None), false) if is_asked => {
                tracing::info!("the rules stay as they were: the file is the same");
            }
            (_, false) => {}
        }
    }

    /// As [`reload_and_log`](Self::reload_and_log). A panic, such as one of a listener, does not end the thread: it is logged and counted.
    pub(crate) fn reload_by_thread(&self, is_asked: bool) {
        let reloaded = panic::catch_unwind(AssertUnwindSafe(|| self.reload_and_log(is_asked)));
        // Relaxed: it orders nothing else.
        self.0.has_failed.store(reloaded.is_err(), Ordering::Relaxed);
        if reloaded.is_err() {
            #[cfg(feature = "metrics")]
            self.0.meter.count_panic();
            tracing::error!("reading the rules file has panicked: it is read again with its next change");
        }
    }

    /// Whether the file is not followed, because no thread could be started for it, or because its last reading has panicked.
    #[doc(hidden)]
    pub fn has_lost_its_file(&self) -> bool {
        self.0.has_failed.load(Ordering::Relaxed)
    }

    /// Rules that code has put in force stay until the file changes, unless a reload is asked for.
    fn read_again(&self, is_asked: bool) -> Reloaded {
        let Some(source) = &self.0.source else { return (Ok(None), false) };
        let mut in_force = lock(&self.0.in_force);
        let known = in_force.read.as_ref().filter(|_| !(is_asked && in_force.is_replaced));
        let read = source.read(known).and_then(|read| {
            let Some((text, file)) = read else { return Ok(None) };
            let changes = self.put(&mut in_force, &file)?;
            in_force.read = Some(FileContents { text, files: file.compiled.files });
            in_force.is_replaced = false;
            Ok(Some(changes))
        });
        let before = std::mem::replace(&mut in_force.error, read.as_ref().err().cloned());
        let is_news = match &read {
            Ok(changes) => changes.is_some() || before.is_some(),
            Err(error) => before.as_ref() != Some(error),
        };
        self.tell(in_force, is_news.then(|| read.as_ref().map(Option::as_ref)));
        (read, is_news)
    }

    /// Releases the rules in force, and reports this news before any later news.
    pub(crate) fn tell(&self, in_force: MutexGuard<'_, FileInForce>, news: Option<News<'_>>) {
        let _turn = self.0.listeners.turn();
        drop(in_force);
        #[cfg(feature = "metrics")]
        self.0.meter.tell(news, self.0.store.now_us());
        if let Some(news) = news {
            self.0.listeners.hear(news);
        }
    }
}

/// A file that is read again.
pub(crate) struct FileSource {
    pub path: PathBuf,
    pub variables: Variables,
    /// The names of keys that the program finds itself.
    pub given_keys: Vec<String>,
}

/// The text of the file, and the other files that it names.
pub(crate) struct FileContents {
    pub text: String,
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl FileSource {
    /// The text and the file, if anything differs from the known contents.
    pub(crate) fn read(
        &self,
        known: Option<&FileContents>,
    ) -> Result<Option<(String, RulesFile)>, RulesError> {
        let text = read::text(&self.path).map_err(|problem| self.error(&problem))?;
        let is_same = |(path, bytes): &(PathBuf, Vec<u8>)| {
            read::bytes(path, bytes.len()).is_ok_and(|now| now == *bytes)
        };
        if known.is_some_and(|known| known.text == text && known.files.iter().all(is_same)) {
            return Ok(None);
        }
        let name = self.path.display().to_string();
        let file = RulesFile::parse_in(&name, &text, self.path.parent(), &self.variables, &self.given_keys)?;
        Ok(Some((text, file)))
    }

    pub(crate) fn error(&self, problem: &str) -> RulesError {
        RulesError::of_file(&self.path.display().to_string(), problem)
    }
}

/// News for a listener: the changes that took effect; `None` if the file again equals the one in force; or its mistakes.
pub(crate) type News<'a> = Result<Option<&'a Changes>, &'a RulesError>;

type NewsListener = Arc<dyn Fn(News<'_>) + Send + Sync>;

/// All listeners.
#[derive(Default)]
pub(crate) struct NewsListeners {
    all: Mutex<Vec<NewsListener>>,
    /// Keeps news in the order of the changes.
    turn: Mutex<()>,
}

impl NewsListeners {
    /// Adds a listener permanently.
    pub(crate) fn add(&self, listener: impl Fn(News<'_>) + Send + Sync + 'static) {
        lock(&self.all).push(Arc::new(listener));
    }

    /// Taken before the next change can begin, and held until listeners know of this one.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Calls all listeners, without holding the lock: a listener may add another one.
    pub(crate) fn hear(&self, news: News<'_>) {
        let all = lock(&self.all).clone();
        all.iter().for_each(|listener| listener(news));
    }
}

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
