//! The compiler's message for a builder that is passed to a router or a tower stack as a layer.

use tower_layer::Layer;

use crate::limits::LimitsBuilder;

/// No type implements it: a builder is not a layer yet.
#[diagnostic::on_unimplemented(
    message = "the builder of a `RateLimitLayer` is no layer yet",
    label = "`build` is missing",
    note = "write `RateLimitLayer::builder(..).build()?`, with the `?`: the limits may not go together"
)]
#[expect(unnameable_types, reason = "nobody shall implement it")]
pub trait LayerOfBuilder<S> {}

#[doc(hidden)]
impl<R, S> Layer<S> for LimitsBuilder<R>
where
    Self: LayerOfBuilder<S>,
{
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}
