//! The spans of a process, as a subscriber sees them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// All spans since it was installed.
#[derive(Clone, Default)]
pub(crate) struct Spans(Arc<Mutex<Vec<Seen>>>);

/// A span: its name, that of its parent, its fields in the order in which they were recorded, and whether it is over.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    id: u64,
    pub(crate) name: &'static str,
    pub(crate) parent: Option<&'static str>,
    fields: Vec<(&'static str, String)>,
    pub(crate) is_over: bool,
}

impl Seen {
    /// The fields of a decision, as `name=value`, each as often as it was recorded.
    pub(crate) fn fields(&self) -> String {
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fields.join(" ").replace("rate_limit.", "")
    }
}

impl Spans {
    /// Sees all spans of this process, which has to be one of a single test.
    pub(crate) fn of_this_process() -> Self {
        let spans = Self::default();
        tracing::subscriber::set_global_default(Registry::default().with(spans.clone())).unwrap();
        spans
    }

    /// The spans so far, which are forgotten.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The spans of this name so far, and all are forgotten.
    pub(crate) fn named(&self, name: &str) -> Vec<Seen> {
        self.take().into_iter().filter(|span| span.name == name).collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        let mut spans = self.0.lock().unwrap();
        // An id is given again when its span is over.
        if let Some(span) = spans.iter_mut().rev().find(|span| span.id == id.into_u64()) {
            change(span);
        }
    }
}

#[derive(Default)]
struct Fields(HashMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut fields: Vec<_> = fields.0.into_iter().collect();
        fields.sort();
        let parent = span.parent().map(|parent| parent.name());
        let seen = Seen { id: id.into_u64(), name: span.name(), parent, fields, is_over: false };
        self.0.lock().unwrap().push(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.change(id, |span| span.fields.extend(fields.0));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |span| span.is_over = true);
    }
}
