//! The compiler's message if a limiter is passed to a router or a tower stack as a layer.

use tower_layer::Layer;

use super::RateLimiter;

/// No type implements it, because a limiter does not know requests.
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
