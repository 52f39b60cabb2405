//! The extractor that replaces a handler's arguments, which are extracted behind its limits as axum does.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

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

sluicegate_core::debug_as!(Limited < A, X > {});

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

sluicegate_core::debug_as!(Via<M> {});

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

/// The arguments of a handler, or the rejection of an extractor.
pub type Extracting<A> = Pin<Box<dyn Future<Output = Result<A, Response>> + Send>>;

/// The arguments of a handler, as a tuple; `S` is the router's state, and `M` the way in which the last argument is extracted. The
/// compiler infers both, as for every handler.
pub trait Arguments<S, M>: Send + Sized + 'static {
    /// Extracts one argument after the other, the last with the body.
    fn extract(request: Request, state: S) -> Extracting<Self>;
}

impl<S> Arguments<S, ()> for () {
    fn extract(_: Request, _: S) -> Extracting<()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

macro_rules! arguments {
    ($($first:ident)* | $last:ident) => {
        impl<S, M, $($first,)* $last> Arguments<S, M> for ($($first,)* $last,)
        where
            S: Send + Sync + 'static,
            M: 'static,
            $($first: FromRequestParts<S> + Send + 'static,)*
            $last: FromRequest<S, M> + Send + 'static,
        {
            #[allow(non_snake_case, unused_mut, reason = "each type names its value; one argument needs no parts")]
            fn extract(request: Request, state: S) -> Extracting<Self> {
                Box::pin(async move {
                    let (mut parts, body) = request.into_parts();
                    $(
                        let $first = $first::from_request_parts(&mut parts, &state).await;
                        let $first = $first.map_err(IntoResponse::into_response)?;
                    )*
                    let $last = $last::from_request(Request::from_parts(parts, body), &state).await;
                    Ok(($($first,)* $last.map_err(IntoResponse::into_response)?,))
                })
            }
        }
    };
}

arguments!(| A1);
arguments!(A1 | A2);
arguments!(A1 A2 | A3);
arguments!(A1 A2 A3 | A4);
arguments!(A1 A2 A3 A4 | A5);
arguments!(A1 A2 A3 A4 A5 | A6);
arguments!(A1 A2 A3 A4 A5 A6 | A7);
arguments!(A1 A2 A3 A4 A5 A6 A7 | A8);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 | A9);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 A9 | A10);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 | A11);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 | A12);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 | A13);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 | A14);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 | A15);
arguments!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A15 | A16);
