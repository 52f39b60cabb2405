//! The builder of a [`RateLimitLayer`].

#[cfg(doc)]
use crate::respond::refusal::IntoRefusalResponse;
#[cfg(doc)]
use http::Response;
use std::future::Future;

use sluicegate_core::ConfigError;
use tower_layer::Layer;

use crate::limits::{IntoGroup, LimitsBuilder, LimitsHandle};
use crate::rate_limit::layer::RateLimitLayer;
use crate::respond::problem::ProblemJson;
use crate::respond::refusal::Refusal;
use crate::respond::stop::RespondLater;

/// Collects the limits and settings of a [`RateLimitLayer`]: see [`LimitsBuilder`], and
/// [`respond`](LimitsBuilder::respond).
pub type RateLimitLayerBuilder<R = ProblemJson> = LimitsBuilder<Responding<R>>;

/// Holds the responder for refused requests.
pub struct Responding<R>(R);

impl RateLimitLayer {
    /// Starts building a layer with several limits or with other settings.
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
    /// Sets a closure that makes the response to a refused request: its body and its status, as a [`Response`], with the feature `axum`
    /// also as [anything that axum responds with](IntoRefusalResponse). Default: [`ProblemJson`].
    ///
    /// The layer adds the rate limit fields and `Retry-After` to the response, and `Cache-Control: no-store` if the response has no
    /// cache directive.
    pub fn respond<F, T>(self, respond: F) -> LimitsBuilder<Responding<F>>
    where
        F: Fn(&Refusal<'_>) -> T + Send + Sync + 'static,
    {
        self.responder(respond)
    }

    /// As [`respond`](Self::respond), with a type that implements [`Respond`](crate::respond::Respond).
    pub fn responder<N>(self, respond: N) -> LimitsBuilder<Responding<N>> {
        self.with_respond(Responding(respond))
    }

    /// As [`respond`](Self::respond), for asynchronous responses: a page from a database, a translation.
    /// `respond` takes what it needs from the refusal and returns a future.
    ///
    /// A flood causes millions of refusals, so waiting is bounded: as many responses may wait as requests may
    /// [wait](Self::longest_queue), counted apart from the requests, and each as long as a [look-up](Self::longest_lookup). Beyond these
    /// bounds, [`ProblemJson`] makes the response.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use http_body_util::Full;
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// /// Asks a database.
    /// async fn page(language: Option<String>) -> String {
    ///     format!("<p lang={:?}>..</p>", language.unwrap_or_default())
    /// }
    ///
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .respond_async(|refusal| {
    ///         let language = refusal.request().headers.get("accept-language");
    ///         let language = language.and_then(|language| language.to_str().ok()).map(str::to_owned);
    ///         let status = refusal.status();
    ///         async move {
    ///             let mut response = Response::new(Full::new(Bytes::from(page(language).await)));
    ///             *response.status_mut() = status;
    ///             response
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn respond_async<F, A>(self, respond: F) -> LimitsBuilder<Responding<RespondLater<F>>>
    where
        F: Fn(&Refusal<'_>) -> A + Send + Sync + 'static,
        A: Future + Send + 'static,
    {
        self.with_respond(Responding(RespondLater(respond)))
    }

    /// Checks that the limits can be decided together, and makes the layer.
    ///
    /// # Errors
    /// As [`LimitsBuilder::build`](LimitsBuilder#method.build).
    pub fn build(self) -> Result<RateLimitLayer<R>, ConfigError> {
        let (limits, Responding(respond)) = self.finish()?;
        Ok(RateLimitLayer::of(LimitsHandle::of_layer(limits), respond))
    }
}

sluicegate_core::debug_as!(Responding<R> {});

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
