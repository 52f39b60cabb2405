//! The limiter found for a request, or the reason why there is none.

use http::StatusCode;
use sluicegate_core::{ConfigError, RateLimiter};

/// The limiter that a limit asks.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The known limiter at this index.
    Known(usize),
    Chosen(RateLimiter),
}

/// The limiter found for a request.
pub(crate) enum Pick {
    Limiter(Which),
    Unlimited,
    /// Requests without a tier are refused with this status.
    Refused(StatusCode),
    /// The chosen policy cannot be opened.
    Mistake(ConfigError),
}
