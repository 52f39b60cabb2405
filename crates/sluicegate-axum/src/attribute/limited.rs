//! The extractor that is a whole handler behind its limits.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::call::{Call, Limits};

/// The response to a request: of the handler `L`, or of the limits in front of it.
pub struct Limited<L> {
    response: Response,
    handler: PhantomData<fn() -> L>,
}

impl<L> Limited<L> {
    /// The response.
    pub fn into_response(self) -> Response {
        self.response
    }
}

impl<L> fmt::Debug for Limited<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Limited").field(&self.response).finish()
    }
}

/// Tells axum's inference which way of extracting the handler's last argument is meant.
pub struct Via<M>(PhantomData<fn() -> M>);

impl<M> fmt::Debug for Via<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Via")
    }
}

impl<L, S, M> FromRequest<S, Via<M>> for Limited<L>
where
    L: Limits<S, M>,
    S: Clone + Send + Sync + 'static,
{
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let response = match L::attribute().layer(request.extensions()) {
            // The handler's own code is always ready, and so is a limit in front of it.
            Ok(layer) => layer.layer(Call::<L, S, M>::new(state.clone())).call(request).await?,
            Err(mistake) => mistake.into_response(),
        };
        Ok(Self { response, handler: PhantomData })
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
