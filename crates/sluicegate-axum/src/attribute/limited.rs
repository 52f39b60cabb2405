//! The extractor that replaces a handler's arguments, which are extracted behind its limits.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::response::Response;

use super::arguments::{Arguments, Extracting};
use super::source::Attribute;

/// Extracts arguments from a request; holds the router's state.
pub(super) type Extract<A> = Box<dyn FnOnce(Request) -> Extracting<A> + Send>;

/// The slot into which a handler that is asked puts its attribute.
pub(super) type AskedAttribute = Arc<OnceLock<&'static Attribute>>;

/// Answers the question with this attribute; the response is not read.
pub(super) fn answer(asked: &AskedAttribute, attribute: &'static Attribute) -> Response {
    // The attribute answers only once; a wrapper of the handler does not change the answer.
    _ = asked.set(attribute);
    Response::default()
}

/// A request whose arguments `A` are extracted once it is let through; `X` is the state for the handler's fallback.
pub struct Limited<A, X = NoState>(pub(super) Handed<A, X>);

/// The input of a handler.
#[expect(clippy::large_enum_variant, reason = "a question is rare, and for it every request would pay a box")]
pub(super) enum Handed<A, X> {
    Request {
        request: Request,
        extract: Extract<A>,
        state: X,
    },
    /// The handler is asked for its attribute, and runs none of its own code.
    Question(AskedAttribute),
}

impl<A, X> fmt::Debug for Limited<A, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Limited")
    }
}

/// The state of a fallback whose handler takes no state; it works in any router.
#[derive(Debug)]
#[non_exhaustive]
pub struct NoState;

impl<S> FromRef<S> for NoState {
    fn from_ref(_: &S) -> Self {
        Self
    }
}

/// Tells axum's inference how the handler's last argument is extracted.
pub struct Via<M>(PhantomData<fn() -> M>);

impl<M> fmt::Debug for Via<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Via")
    }
}

impl<A, X, S, M> FromRequest<S, Via<M>> for Limited<A, X>
where
    A: Arguments<S, M>,
    X: FromRef<S>,
    S: Clone + Send + Sync + 'static,
{
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let own = state.clone();
        Ok(Self(Handed::Request {
            request,
            extract: Box::new(move |request| A::extract(request, own)),
            state: X::from_ref(state),
        }))
    }
}

/// Stands for an argument of the handler, which is extracted behind the limit.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Skip;

impl<S: Sync> FromRequestParts<S> for Skip {
    type Rejection = Infallible;

    async fn from_request_parts(_parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self)
    }
}
