//! Why there is no permit: [`NoPermit`].

use std::error::Error;
use std::fmt;

/// There is no permit for a key now.
///
/// ```
/// use sluicegate_core::in_flight::{InFlight, NoPermitKind};
///
/// let exports = InFlight::new("exports", 1)?;
/// let _held = exports.try_acquire("ada")?;
/// let none = exports.try_acquire("ada").unwrap_err();
/// assert_eq!(none.kind(), NoPermitKind::Permits);
/// assert_eq!(none.to_string(), "all permits of \"exports\" are out: at most 1 at once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPermit {
    kind: NoPermitKind,
    name: String,
    permits: u64,
}

/// The number that is too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoPermitKind {
    /// All permits of the key are out.
    Permits,
    /// The queue of the key, or that of all keys together, is full, or a request that matters more has taken the place.
    Queue,
}

impl NoPermit {
    pub(super) fn new(kind: NoPermitKind, name: String, permits: u64) -> Self {
        Self { kind, name, permits }
    }

    /// The number that is too high.
    pub fn kind(&self) -> NoPermitKind {
        self.kind
    }

    /// The name of the [`InFlight`](crate::in_flight::InFlight) that was asked.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of permits that each key has.
    pub fn permits(&self) -> u64 {
        self.permits
    }
}

impl fmt::Display for NoPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, permits } = self;
        match kind {
            NoPermitKind::Permits => write!(f, "all permits of {name:?} are out: at most {permits} at once"),
            NoPermitKind::Queue => write!(f, "too many wait for one of the {permits} permits of {name:?}"),
        }
    }
}

impl Error for NoPermit {}
