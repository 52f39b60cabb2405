//! The limiter found for a request, or the reason why there is none.

use http::StatusCode;
use sluicegate_core::{ConfigError, RateLimiter};

/// The limiter that a limit asks.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The known limiter at this index.
    Known(usize),
    /// A limiter with quotas of the request's key.
    Chosen(RateLimiter),
}

/// The limiter found for a request.
pub(crate) enum Pick {
    Limiter(Which),
    Unlimited,
    /// Requests without a tier are refused with this status.
    Refused(StatusCode),
    /// The quotas of the request cannot be kept.
    Mistake(ConfigError),
}
