//! The names of a suspension's buckets, and their longest spans.

use std::time::Duration;

use crate::error::{ConfigError, ConfigErrorKind};

/// The endings of the names of a suspension's buckets. No other policy's name may have one of them.
pub(super) const ENDINGS: [&str; 3] = [".strikes", ".suspended", ".suspensions"];

/// The shortest span, which is also the unit of suspensions.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// The longest: ten years of 365 days.
pub(super) const LONGEST: Duration = Duration::from_secs(315_360_000);

/// Whether a policy of this name is a bucket of a suspension.
pub(in crate::policy) fn is_of_suspension(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Refuses a name with the ending of a suspension's buckets.
pub(in crate::policy) fn check_ending(name: &str) -> Result<(), ConfigError> {
    match ENDINGS.iter().find(|ending| name.ends_with(**ending)) {
        None => Ok(()),
        Some(ending) => {
            let problem = format!(
                "{name:?} cannot be a policy name: names that end in {ending:?} are those of suspensions, so leave that ending out"
            );
            Err(ConfigError::new(ConfigErrorKind::Name, problem))
        }
    }
}
