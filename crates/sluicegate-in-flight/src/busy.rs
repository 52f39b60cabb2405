//! The reason why there is no permit: [`NoPermit`].

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// There is no permit for a key now.
///
/// ```
/// use sluicegate_in_flight::{InFlight, NoPermitKind};
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
    retry_after: Option<Duration>,
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoPermitKind {
    /// All permits of the key are in use.
    Permits,
    /// The queue of the key or of all keys together is full, or a more important request has taken the place.
    Queue,
    /// The store that instances share the permits on gives no answer, and the limit refuses in an outage.
    Outage,
    /// Instances share the permits, so taking one needs a call and has to wait.
    Shared,
}

impl NoPermit {
    pub(super) fn new(kind: NoPermitKind, name: String, permits: u64, retry_after: Option<Duration>) -> Self {
        Self { kind, name, permits, retry_after }
    }

    /// The reason for the refusal.
    pub fn kind(&self) -> NoPermitKind {
        self.kind
    }

    /// The name of the [`InFlight`](crate::InFlight) that was asked.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of permits that each key has.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The time after which a retry makes sense, if the limit adapts: the time in which all current requests [will be
    /// done](crate::InFlight::drains_in).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for NoPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, permits, .. } = self;
        match kind {
            NoPermitKind::Permits => write!(f, "all permits of {name:?} are out: at most {permits} at once"),
            NoPermitKind::Queue => write!(f, "too many wait for one of the {permits} permits of {name:?}"),
            NoPermitKind::Outage => {
                write!(f, "the store of the permits of {name:?} gives no answer: try again when it does")
            }
            NoPermitKind::Shared => {
                write!(
                    f,
                    "instances share the permits of {name:?}: use `acquire`, or `request(key).attempt()`"
                )
            }
        }
    }
}

impl Error for NoPermit {}
