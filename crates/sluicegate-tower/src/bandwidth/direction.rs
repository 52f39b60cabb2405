//! The bodies that a bandwidth limit applies to: [`Direction`].

use std::fmt;
use std::str::FromStr;

use sluicegate_core::ConfigError;

use crate::key::text::unreadable;

/// The bodies whose bytes a [limit of bandwidth](crate::Limit::bandwidth) counts. Written `down`, `up` and `both`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Direction {
    /// Bodies of responses: downloads.
    Down,
    /// Bodies of requests: uploads.
    Up,
    /// Both, from one bucket.
    Both,
}

impl Direction {
    /// Whether it includes bodies of responses.
    pub(crate) fn is_down(self) -> bool {
        self != Self::Up
    }

    /// The words for the bodies.
    pub(crate) fn bodies(self) -> &'static str {
        match self {
            Self::Down => "the response's body",
            Self::Up => "the request's body",
            Self::Both => "both bodies",
        }
    }

    /// Whether it includes bodies of requests.
    pub(crate) fn is_up(self) -> bool {
        self != Self::Down
    }
}

impl FromStr for Direction {
    type Err = ConfigError;

    /// Reads `down`, `up` or `both`.
    ///
    /// # Errors
    /// [`Unreadable`](sluicegate_core::error::ConfigErrorKind::Unreadable) for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "down" => Ok(Self::Down),
            "up" => Ok(Self::Up),
            "both" => Ok(Self::Both),
            _ => Err(unreadable(
                text,
                "does not say which bodies are counted: use \"down\" for those of responses, \"up\" for those of requests, or \"both\"",
            )),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Up => "up",
            Self::Both => "both",
        })
    }
}
