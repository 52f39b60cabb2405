//! Makes a [`Rule`] from a quota, or says why its algorithm cannot count it.

use super::{Algorithm, Checked, InCalendar, Rule, Starting};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;

impl Rule {
    /// Reduces a quota to the integers of its algorithm: the algorithm that the quota [names](Quota::counted_by), or else `algorithm`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Quota`] for zeros, spans that are too long and a start above the burst; [`ConfigErrorKind::Policy`] for a log
    /// in 0 parts or in more than [`MAX_PARTS`](super::SlidingLog::MAX_PARTS); [`ConfigErrorKind::Burst`] for a burst under an algorithm with
    /// windows and a start under an algorithm that starts full; [`ConfigErrorKind::Inexact`] for a quota that cannot be counted in exact
    /// integers. The message names the value and the bound.
    pub fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, ConfigError> {
        let checked = Checked::new(quota)?;
        let algorithm = quota.algorithm().unwrap_or(algorithm);
        if algorithm.is_window() && quota.burst_size() != quota.limit() {
            return Err(ConfigError::new(
                ConfigErrorKind::Burst,
                format!(
                    "{algorithm} does not support a burst, but the quota is {quota}: leave the burst out, or use a token bucket or GCRA"
                ),
            ));
        }
        let missing = missing(algorithm, quota)?;
        Ok(match (algorithm.rule(checked)?, quota.calendar()) {
            (Self::FixedWindow(window), Some(period)) if algorithm.is_aligned() => {
                let window = window.ending_debts();
                match missing {
                    0 => Self::CalendarWindow(InCalendar::new(window, period)),
                    _ => Self::StartingCalendar(InCalendar::new(Starting::new(window, missing), period)),
                }
            }
            (_, Some(period)) => {
                let problem = format!(
                    "{algorithm} has no periods of the calendar, but the quota is for each {period}: use fixed-window, or token-bucket-aligned for what is carried over"
                );
                return Err(ConfigError::new(ConfigErrorKind::Quota, problem));
            }
            (Self::Gcra(bucket), None) if missing > 0 => Self::StartingGcra(Starting::new(bucket, missing)),
            (Self::FixedWindow(bucket), None) if missing > 0 => {
                Self::StartingWindow(Starting::new(bucket, missing))
            }
            (rule, None) => rule,
        })
    }
}

/// The units of a burst that a newcomer lacks.
fn missing(algorithm: Algorithm, quota: Quota) -> Result<u64, ConfigError> {
    let (Some(start), burst) = (quota.start(), quota.burst_size()) else { return Ok(0) };
    let Some(missing) = burst.checked_sub(start) else {
        let problem = format!(
            "{quota} starts a key with {start} units, and its burst is {burst}: use at most the burst"
        );
        return Err(ConfigError::new(ConfigErrorKind::Quota, problem));
    };
    if missing > 0 && !algorithm.can_start_short() {
        let problem = format!(
            "{algorithm} starts full, but the quota is {quota}: leave the start out, or use a token bucket, a leaky bucket that refuses, or GCRA"
        );
        return Err(ConfigError::new(ConfigErrorKind::Burst, problem));
    }
    Ok(missing)
}
