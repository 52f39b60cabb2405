//! The room as the status page shows and controls it.
//!
//! Operators write a rate and a mode as text, and read the same words. Both are parsed before either takes effect, so a mistake in one
//! changes nothing.

use std::fmt;
use std::str::FromStr;

use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_tower::room::{Room, RoomChange, RoomNumbers};

use crate::line::LineMode;
use crate::room::WaitingRoom;

impl Room for WaitingRoom {
    fn name(&self) -> &str {
        self.name()
    }

    fn numbers(&self) -> RoomNumbers {
        let now = self.status();
        let mut numbers = RoomNumbers::new(word(now.mode), now.rate);
        numbers.waiting = now.waiting;
        numbers.active = now.active;
        numbers.admitted = now.admitted;
        numbers.passed_over = now.passed_over;
        numbers.wait = now.wait;
        numbers
    }

    fn change<'a>(&'a self, rate: Option<&'a str>, mode: Option<&'a str>) -> RoomChange<'a> {
        Box::pin(async move {
            // Parsed before anything is changed.
            let mode = mode.map(str::parse::<LineMode>).transpose()?;
            if let Some(rate) = rate {
                self.set_rate(rate).await?;
            }
            if let Some(mode) = mode {
                self.set_mode(mode).await?;
            }
            Ok(())
        })
    }
}

fn word(mode: LineMode) -> &'static str {
    match mode {
        LineMode::Metered => "metered",
        LineMode::Paused => "paused",
        LineMode::Open => "open",
    }
}

/// Writes `metered`, `paused` or `open`.
impl fmt::Display for LineMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(*self))
    }
}

/// Reads what [`Display`](fmt::Display) writes.
///
/// ```
/// use sluicegate_overflow::line::LineMode;
///
/// assert_eq!("paused".parse::<LineMode>()?, LineMode::Paused);
/// let problem = "closed".parse::<LineMode>().unwrap_err().to_string();
/// assert_eq!(problem, "\"closed\" is not a mode of a waiting room: write metered, paused or open");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
impl FromStr for LineMode {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        [Self::Metered, Self::Paused, Self::Open].into_iter().find(|mode| word(*mode) == text).ok_or_else(
            || {
                let shown: String = text.chars().take(64).collect();
                let problem =
                    format!("{shown:?} is not a mode of a waiting room: write metered, paused or open");
                ConfigError::new(ConfigErrorKind::Unreadable, problem)
            },
        )
    }
}
