//! The line of code that opened a name, to report another line that shares its buckets by accident: [`OpenedAt`].

use std::panic::Location;
use std::sync::Once;

type CallSite = &'static Location<'static>;

/// The line of code that opened a name. A file of rules has each name only once, and needs no line.
pub(super) struct OpenedAt {
    place: Option<CallSite>,
    told: Once,
}

impl OpenedAt {
    pub(super) fn code(place: CallSite) -> Self {
        Self { place: Some(place), told: Once::new() }
    }

    pub(super) fn rules() -> Self {
        Self { place: None, told: Once::new() }
    }

    pub(super) fn is_rules(&self) -> bool {
        self.place.is_none()
    }

    /// Logs once that another line of code opens the name, too. A line that runs several times is not reported.
    pub(super) fn tell_of(&self, again: CallSite, policy: &str) {
        if let Some(first) = self.place.filter(|first| *first != again) {
            self.told.call_once(|| log(policy, first, again));
        }
    }
}

#[cfg(feature = "tracing")]
fn log(policy: &str, first: CallSite, again: CallSite) {
    tracing::debug!(
        policy,
        %first,
        %again,
        "two places open one policy, so the limits that they make spend from the same buckets: if each is to count on its own, \
         give it a policy of another name; if they are meant to share, open it once and clone the limiter"
    );
}

#[cfg(not(feature = "tracing"))]
fn log(_: &str, _: CallSite, _: CallSite) {}
