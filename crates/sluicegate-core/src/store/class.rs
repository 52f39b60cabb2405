//! The importance of a request: [`Class`].

use std::fmt;
use std::str::FromStr;

use crate::error::{ConfigError, ConfigErrorKind};
use crate::listed::listed;

/// The importance of a request, when not all can be served.
///
/// The classes of Google's "Site Reliability Engineering", chapter 21, "Handling Overload". While requests compete for a
/// limit that adapts (`InFlight::adaptive` of the crate `sluicegate-in-flight`), requests of lower classes are refused first.
///
/// # As text
/// Prints and parses as `critical-plus`, `critical`, `sheddable-plus` and `sheddable`.
///
/// ```
/// use sluicegate_core::store::Class;
///
/// assert_eq!("sheddable-plus".parse::<Class>()?, Class::SheddablePlus);
/// assert_eq!(Class::default().to_string(), "critical");
/// assert!(Class::CriticalPlus < Class::Sheddable, "the most important one is the first");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A failure of the request would be serious, and visible to users.
    CriticalPlus,
    /// A user waits for the request. Requests whose class is not known are of this one.
    #[default]
    Critical,
    /// Some unavailability is expected: batch jobs that try again after minutes or hours.
    SheddablePlus,
    /// Partial unavailability, and now and then a full one, is expected.
    Sheddable,
}

listed!(Class, "All classes, the most important one first.", "The name of the class, as it is written.":
    CriticalPlus => "critical-plus", Critical => "critical", SheddablePlus => "sheddable-plus",
    Sheddable => "sheddable");

impl Class {
    /// Its place in [`ALL`](Self::ALL).
    pub fn place(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|class| class.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            let problem = format!("there is no class {text:?}: use one of {words}");
            ConfigError::new(ConfigErrorKind::Policy, problem)
        })
    }
}
