//! Putting a [`RateLimitLayer`] together.

use std::fmt;

use sluicegate_core::ConfigError;

use crate::limits::{IntoGroup, LimitsBuilder, LimitsHandle};
use crate::rate_limit::layer::RateLimitLayer;
use crate::respond::problem::ProblemJson;

/// Collects the limits and settings of a [`RateLimitLayer`]: see [`LimitsBuilder`], and
/// [`respond`](LimitsBuilder::respond).
pub type RateLimitLayerBuilder<R = ProblemJson> = LimitsBuilder<Responding<R>>;

/// Limits with what makes the responses to requests that are refused.
pub struct Responding<R>(R);

impl RateLimitLayer {
    /// Begins a layer with several limits or with other settings.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::{Limit, RateLimitLayer};
    /// use sluicegate_tower::key::{HeaderKey, OnMissingKey};
    /// use sluicegate_tower::respond::HeaderFields;
    ///
    /// let store = MemoryStore::new();
    /// let per_address = Policy::gcra("address", "10/s").on(&store)?;
    /// let per_api_key = Policy::sliding_counter("api-key", "1000/h").on(&store)?;
    ///
    /// // Both are spent from, or neither is.
    /// let layer = RateLimitLayer::builder(per_address)
    ///     .and(Limit::new(per_api_key).key(HeaderKey::new("x-api-key")?).on_missing_key(OnMissingKey::Skip))
    ///     .headers(HeaderFields::Ietf)
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn builder(limit: impl IntoGroup) -> RateLimitLayerBuilder {
        LimitsBuilder::new(limit.into_group(), Responding(ProblemJson::new()))
    }
}

impl<R> LimitsBuilder<Responding<R>> {
    /// Sets the responder for refused requests: a closure, or a type of yours. Default: [`ProblemJson`].
    ///
    /// It makes the body and the status. The rate limit fields are added to whatever it makes, and
    /// `Cache-Control: no-store` where it says nothing about caches.
    pub fn respond<N>(self, respond: N) -> LimitsBuilder<Responding<N>> {
        self.with_respond(Responding(respond))
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
