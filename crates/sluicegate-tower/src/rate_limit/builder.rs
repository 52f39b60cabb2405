//! Putting a [`RateLimitLayer`] together.

use std::fmt;

use sluicegate_core::ConfigError;

use crate::limits::{Group, LimitsBuilder, LimitsHandle};
use crate::rate_limit::layer::RateLimitLayer;
use crate::respond::problem::ProblemJson;

/// Collects the limits and settings of a [`RateLimitLayer`]: see [`LimitsBuilder`], and
/// [`respond`](LimitsBuilder::respond).
pub type RateLimitLayerBuilder<R = ProblemJson> = LimitsBuilder<Responding<R>>;

/// Limits with what makes the responses to requests that are refused.
pub struct Responding<R>(R);

impl RateLimitLayerBuilder {
    pub(super) fn begin(limit: Group) -> Self {
        Self::new(limit, Responding(ProblemJson::new()))
    }
}

impl<R> LimitsBuilder<Responding<R>> {
    /// Who makes the response to a refused request: a closure, or a type of yours. Default: [`ProblemJson`].
    pub fn respond<N>(self, respond: N) -> LimitsBuilder<Responding<N>> {
        self.with_respond(|_| Responding(respond))
    }

    /// Checks that the limits can be decided together, and makes the layer.
    ///
    /// # Errors
    /// As [`LimitsBuilder::build`](LimitsBuilder#method.build).
    pub fn build(self) -> Result<RateLimitLayer<R>, ConfigError> {
        let (limits, Responding(respond)) = self.finish()?;
        Ok(RateLimitLayer::of(LimitsHandle::new(limits), respond))
    }
}

impl<R> fmt::Debug for Responding<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responding")
    }
}
