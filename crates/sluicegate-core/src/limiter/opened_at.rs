//! The line of code that opened a name, to tell of two that share its buckets unasked: [`OpenedAt`].

use std::panic::Location;
#[cfg(feature = "tracing")]
use std::sync::Once;

/// Where a name was opened, if that was in code: a file of rules has each name once.
pub(super) struct OpenedAt {
    place: Option<&'static Location<'static>>,
    #[cfg(feature = "tracing")]
    told: Once,
}

impl OpenedAt {
    pub(super) fn code(place: &'static Location<'static>) -> Self {
        Self {
            place: Some(place),
            #[cfg(feature = "tracing")]
            told: Once::new(),
        }
    }

    pub(super) fn rules() -> Self {
        Self {
            place: None,
            #[cfg(feature = "tracing")]
            told: Once::new(),
        }
    }

    pub(super) fn is_rules(&self) -> bool {
        self.place.is_none()
    }

    /// Says once for each name that another line of code opens it, too. A loop over one line is meant.
    #[cfg(feature = "tracing")]
    pub(super) fn tell_of(&self, again: &'static Location<'static>, policy: &str) {
        let Some(first) = self.place.filter(|first| *first != again) else { return };
        self.told.call_once(|| {
            tracing::debug!(
                policy,
                %first,
                %again,
                "two places open one policy, so what both limit spends from the same buckets: if each is to count on its own, \
                 give it a policy of another name; if they are meant to share, open it once and clone the limiter"
            );
        });
    }

    #[cfg(not(feature = "tracing"))]
    pub(super) fn tell_of(&self, _: &'static Location<'static>, _: &str) {}
}
