//! The parts of a status whose JSON is not that of their type: times, words, and numbers by class.

use std::fmt::Display;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::Class;
use crate::status::{AdaptiveMoment, minutes_of};

/// Writes milliseconds. Times are known to a tenth of a microsecond.
pub fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1e7).round() / 1e4)
}

/// Writes whole seconds.
pub fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_secs())
}

/// As [`seconds`], or `null`.
pub(super) fn seconds_if_any<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs()).serialize(serializer)
}

/// Writes a value as it is displayed.
pub(super) fn word<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes whether a store answers: `ok` or `down`.
pub(super) fn ok_or_down<S: Serializer>(is_down: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *is_down { "down" } else { "ok" })
}

/// Writes an object with the number of each class.
pub(super) fn by_class<T: Serialize, S: Serializer>(
    numbers: &[T; 4],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let names = Class::ALL.map(|class| class.as_str().replace('-', "_"));
    serializer.collect_map(names.into_iter().zip(numbers))
}

/// Writes the last moment of each of the last 60 minutes, the oldest first; `null` for a minute without one.
pub(super) fn minutes<S: Serializer>(history: &[AdaptiveMoment], serializer: S) -> Result<S::Ok, S::Error> {
    minutes_of(history).serialize(serializer)
}
