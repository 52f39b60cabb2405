//! Metrics of reloads, sent to the recorder of the `metrics` facade: [`ReloadMeter`].
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `rate_limit_rules_reloads_total` | counter | `result` (`loaded`, `wrong`, and `panicked` once that happened) |
//! | `rate_limit_rules_loaded_timestamp_seconds` | gauge | |
//!
//! They are counted only at reloads: no request touches them.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::reload::News;

const RELOADS: &str = "rate_limit_rules_reloads_total";
const LOADED: &str = "rate_limit_rules_loaded_timestamp_seconds";

/// Counts reloads of the rules, and records when the rules in force were loaded.
pub(crate) struct ReloadMeter {
    loaded_us: AtomicU64,
}

impl ReloadMeter {
    pub(crate) fn loaded_at(now_us: u64) -> Self {
        let meter = Self { loaded_us: AtomicU64::new(now_us) };
        meter.tell(None, now_us);
        meter
    }

    /// Counts a reading that panicked.
    pub(crate) fn count_panic(&self) {
        counter!(RELOADS, "result" => "panicked").increment(1);
    }

    /// Counts the news, if any. Gauges are set each time, because a recorder may have been installed later.
    pub(crate) fn tell(&self, news: Option<News<'_>>, now_us: u64) {
        describe_counter!(
            RELOADS,
            "Rules files that took effect, and those that were wrong and changed nothing."
        );
        describe_gauge!(LOADED, "When the rules that are in force took effect, in seconds of Unix time.");
        let (loaded, wrong) = match news {
            Some(Ok(Some(_))) => (1, 0),
            Some(Err(_)) => (0, 1),
            Some(Ok(None)) | None => (0, 0),
        };
        // Zero shows a series before it grows, so that its first increase is seen.
        counter!(RELOADS, "result" => "loaded").increment(loaded);
        counter!(RELOADS, "result" => "wrong").increment(wrong);
        if loaded > 0 {
            // Relaxed: a single number.
            self.loaded_us.store(now_us, Ordering::Relaxed);
        }
        let loaded_us = self.loaded_us.load(Ordering::Relaxed);
        gauge!(LOADED).set(std::time::Duration::from_micros(loaded_us).as_secs_f64());
    }
}
