//! The limiter found for a request, or the reason why there is none.

use http::StatusCode;
use sluicegate_core::{ConfigError, RateLimiter};

/// The limiter of a limit that is asked.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The known limiter in this place.
    Known(usize),
    Chosen(RateLimiter),
}

/// The limiter found for a request.
pub(crate) enum Pick {
    Limiter(Which),
    Unlimited,
    /// Requests without a tier are refused with this status.
    Refused(StatusCode),
    /// A policy was chosen that cannot be opened.
    Mistake(ConfigError),
}
