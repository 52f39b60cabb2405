//! Numbers for the recorder of the `metrics` facade: the increase of totals, [`ExportedTotals`], and gauges, [`Gauges`].
//!
//! A handle that is made before a recorder is installed never records. So both types remember their recorder, and
//! export everything to a new recorder from the beginning.

use std::array;
use std::collections::HashSet;
use std::ptr;

use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder};

use super::metrics::{ALARM, METRICS, MetricKind, POLICY_INFO};

static METADATA: Metadata<'static> = Metadata::new("sluicegate", Level::INFO, None);

/// A number that identifies the installed recorder.
pub(super) fn recorder() -> usize {
    metrics::with_recorder(|recorder| ptr::from_ref(recorder).addr())
}

fn describe(recorder: &dyn Recorder) {
    for metric in METRICS {
        let (name, help) = (metric.name.into(), metric.help.into());
        match metric.kind {
            MetricKind::Counter => recorder.describe_counter(name, None, help),
            MetricKind::Gauge => recorder.describe_gauge(name, None, help),
            MetricKind::Histogram => recorder.describe_histogram(name, None, help),
        }
    }
}

/// The series of a metric with these labels.
pub(super) fn series<'a>(
    name: &'static str,
    labels: impl IntoIterator<Item = (&'static str, &'a str)>,
) -> Key {
    let labels: Vec<Label> =
        labels.into_iter().map(|(label, value)| Label::new(label, value.to_owned())).collect();
    Key::from_parts(name, labels)
}

pub(super) fn histogram(key: &Key) -> Histogram {
    metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
}

/// For totals that only grow, the part that was already exported to the recorder.
pub(super) struct ExportedTotals<const TOTALS: usize> {
    recorder: usize,
    each: [(Option<Counter>, u64); TOTALS],
}

impl<const TOTALS: usize> ExportedTotals<TOTALS> {
    pub(super) fn nobody() -> Self {
        Self::to(0)
    }

    fn to(recorder: usize) -> Self {
        Self { recorder, each: array::from_fn(|_| (None, 0)) }
    }

    /// Exports the increase of the totals. A series begins when its total is no longer zero; if it is `shown`, it begins at once, so
    /// that its first increase is visible.
    pub(super) fn tell(
        &mut self,
        totals: &[u64; TOTALS],
        shown: impl Fn(usize) -> bool,
        series: impl Fn(usize) -> Key,
    ) {
        let recorder = recorder();
        if self.recorder != recorder {
            *self = Self::to(recorder);
            metrics::with_recorder(describe);
        }
        for (index, ((counter, told), total)) in self.each.iter_mut().zip(totals).enumerate() {
            let new = total.saturating_sub(*told);
            if new == 0 && (counter.is_some() || !shown(index)) {
                continue;
            }
            let bind = || {
                let key = series(index);
                metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
            };
            counter.get_or_insert_with(bind).increment(new);
            *told = *total;
        }
    }
}

/// Gauges that come and go with their subjects.
#[derive(Default)]
pub(super) struct Gauges(HashSet<Key>);

impl Gauges {
    /// Sets these gauges. Earlier gauges that are not among them become NaN; the info of a policy that
    /// is no longer in force, and an alarm that is over, become 0.
    pub(super) fn tell(&mut self, all: impl IntoIterator<Item = (Key, f64)>) {
        let mut before = std::mem::take(&mut self.0);
        metrics::with_recorder(|recorder| {
            for (key, value) in all {
                recorder.register_gauge(&key, &METADATA).set(value);
                before.remove(&key);
                self.0.insert(key);
            }
            for key in before {
                let gone = if [POLICY_INFO, ALARM].contains(&key.name()) { 0.0 } else { f64::NAN };
                recorder.register_gauge(&key, &METADATA).set(gone);
            }
        });
    }
}
