//! What was logged.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the text of every event.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

thread_local! {
    static OF_THIS_THREAD: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Hears all threads. A subscriber for one thread only once missed an event whose call site another thread, which had none,
/// had seen at that moment.
struct Everybody;

impl Log {
    /// What this thread logs from now on.
    ///
    /// # Panics
    /// When something else in this process hears all threads.
    pub fn of_this_thread() -> Self {
        static HEARING: Once = Once::new();
        HEARING.call_once(|| {
            tracing::subscriber::set_global_default(Everybody).expect("nobody else hears all threads");
        });
        let log = Self::default();
        OF_THIS_THREAD.set(Some(log.clone()));
        log
    }

    /// The lines so far: level, target, and fields.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// What this thread logs meanwhile.
pub fn lines_of(run: impl FnOnce()) -> Vec<String> {
    let log = Log::of_this_thread();
    run();
    log.lines()
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Everybody {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line(format!("{} {}", metadata.level(), metadata.target()));
        event.record(&mut line);
        OF_THIS_THREAD.with_borrow(|log| {
            if let Some(log) = log {
                log.0.lock().unwrap().push(line.0);
            }
        });
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
