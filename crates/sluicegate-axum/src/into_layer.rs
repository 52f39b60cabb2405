//! The types of limits for routes: [`IntoRateLimitLayer`].

use sluicegate_tower::RateLimitLayer;

/// A [`RateLimiter`](sluicegate_core::RateLimiter), which counts peer addresses, a [`Limit`](sluicegate_tower::Limit), which
/// has a key of its own, or a whole [`RateLimitLayer`].
///
/// Every type that is `Into<RateLimitLayer<R>>` implements it. It exists for a better compiler message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit for a route",
    label = "not a `RateLimiter`, a `Limit` or a `RateLimitLayer`",
    note = "a policy is a limit when it is on a store: `Policy::gcra(\"api\", \"5/min\").on(&store)?`",
    note = "mind the `?`: `on` returns a `Result`, and so does the `build` of a `RateLimitLayer::builder(..)`"
)]
pub trait IntoRateLimitLayer<R> {
    /// The layer.
    fn into_layer(self) -> RateLimitLayer<R>;
}

#[diagnostic::do_not_recommend]
impl<L: Into<RateLimitLayer<R>>, R> IntoRateLimitLayer<R> for L {
    fn into_layer(self) -> RateLimitLayer<R> {
        self.into()
    }
}
