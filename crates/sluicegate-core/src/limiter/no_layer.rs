//! The compiler's message where a limiter is given to a router or a tower stack as a layer.

use tower_layer::Layer;

use super::RateLimiter;

/// Nothing implements it: a limiter knows no requests.
#[diagnostic::on_unimplemented(
    message = "a `RateLimiter` is no layer",
    label = "not a layer",
    note = "on axum's routers and routes: `use sluicegate::RateLimitExt;` and `.rate_limit(limiter)`",
    note = "in any tower stack: `.layer(RateLimitLayer::new(limiter))`"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait LayerOfLimiter<S> {}

#[doc(hidden)]
impl<S> Layer<S> for RateLimiter
where
    Self: LayerOfLimiter<S>,
{
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}
