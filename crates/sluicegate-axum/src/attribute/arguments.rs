//! Extracts a handler's arguments as axum does.

use std::future::Future;
use std::pin::Pin;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};

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
