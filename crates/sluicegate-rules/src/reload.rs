//! Reads the file again and reports the result: in the log, in metrics, and to listeners.
//!
//! A file is checked often but changes rarely, so only news is reported: a file that took effect, a file that is newly or
//! differently wrong, and a file that is valid again.

use std::panic::{self, AssertUnwindSafe};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use sluicegate_core::support::lock;

use crate::changes::Changes;
use crate::error::RulesError;
use crate::in_force::FileInForce;
use crate::news::News;
use crate::rules::Rules;
use crate::source::FileContents;

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
