//! An asynchronous responder: [`RespondLater`].

use std::future::Future;

use bytes::Bytes;
use http::Response;

use crate::respond::problem::ProblemJson;
use crate::respond::refusal::{IntoRefusalResponse, Later, Refusal, Respond};

/// Makes asynchronous responses; made by
/// [`respond_async`](crate::rate_limit::RateLimitLayerBuilder::respond_async). If there is no time to wait, it responds as
/// [`ProblemJson`].
#[derive(Clone, Copy, Debug)]
pub struct RespondLater<F>(pub(crate) F);

// Only `respond_async` makes one, so a message about a missing responder does not have to name it.
#[diagnostic::do_not_recommend]
impl<F, A, B> Respond<B> for RespondLater<F>
where
    F: Fn(&Refusal<'_>) -> A + Send + Sync + 'static,
    A: Future<Output: IntoRefusalResponse<B>> + Send + 'static,
    B: From<Bytes>,
{
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        ProblemJson::new().respond(refusal)
    }

    fn respond_later(&self, refusal: &Refusal<'_>) -> Option<Later<B>> {
        let (response, status) = ((self.0)(refusal), refusal.status());
        Some(Box::pin(async move { response.await.into_refusal_response(status) }))
    }
}
