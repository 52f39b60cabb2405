//! What is logged while a runtime runs.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;

/// One event, whole.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) level: Level,
    pub(crate) message: String,
    /// All of it, as `field=value` in the order in which it was written.
    pub(crate) text: String,
    /// The part of the store that it is about.
    pub(crate) part: String,
}

/// All lines, of all crates and levels, that the threads of one runtime have written.
#[derive(Clone, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<Line>>>);

impl Logs {
    /// What a thread has to call for its lines to be kept.
    pub(crate) fn listen(&self) -> impl Fn() + Send + Sync + 'static {
        let dispatch = Dispatch::new(registry().with(self.clone()));
        // The thread ends with the runtime, and listens until then.
        move || std::mem::forget(tracing::dispatcher::set_default(&dispatch))
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    /// The lines with this in their message.
    pub(crate) fn about(&self, what: &str) -> Vec<Line> {
        self.lines().into_iter().filter(|line| line.message.contains(what)).collect()
    }

    /// A warning that came more than twice in some second: the second time may be one from the second before.
    pub(crate) fn flood(&self) -> Option<String> {
        let loud: Vec<_> = self.lines().into_iter().filter(|line| line.level <= Level::WARN).collect();
        loud.iter().find_map(|first| {
            let same = |line: &&Line| {
                (&line.message, &line.part) == (&first.message, &first.part)
                    && line.at >= first.at
                    && line.at < first.at + Duration::from_secs(1)
            };
            let count = loud.iter().filter(same).count();
            (count > 2).then(|| format!("{count} times in a second: {}", first.text))
        })
    }
}

impl<S: Subscriber> Layer<S> for Logs {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, text, part } = fields;
        let level = *event.metadata().level();
        let text = format!("{level} {}{text}", event.metadata().target());
        self.0.lock().unwrap().push(Line { at: Instant::now(), level, message, text, part });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    text: String,
    part: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let shown = format!("{value:?}");
        self.text += &format!(" {}={shown}", field.name());
        match field.name() {
            "message" => self.message = shown,
            "part" => self.part = shown,
            _ => {}
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        // As an operator's log shows it: with all causes.
        let causes = std::iter::successors(Some(value), |error| error.source());
        let causes: Vec<_> = causes.map(ToString::to_string).collect();
        self.record_debug(field, &causes.join(": "));
    }
}
