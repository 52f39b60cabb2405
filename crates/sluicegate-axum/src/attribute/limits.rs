//! The store that a router has for its handlers' limits: [`RateLimits`].

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use axum::Extension;
use axum::body::Body;
use axum::middleware::AddExtension;
use axum::response::Response;
use sluicegate_core::{ConfigError, ConfigErrorKind, Store};
use sluicegate_tower::{Headers, ProblemJson, RateLimitLayer, Refusal, Respond};
use tower_layer::Layer;

use super::source::Attribute;

/// The store on which the `#[rate_limited]` handlers of a router keep their limits: a layer for that router.
///
/// `.with_rate_limits(&store)` is the short way. Use this type to say more, once for all handlers. Like every axum
/// layer it is for the routes that were added before it; of several around one handler, the innermost counts.
///
/// ```
/// use axum::{Router, routing::get};
/// use sluicegate_axum::{RateLimits, rate_limited};
/// use sluicegate_core::MemoryStore;
/// use sluicegate_tower::Headers;
///
/// #[rate_limited("5/min", crate = sluicegate_axum)]
/// async fn search() -> &'static str {
///     "nothing found"
/// }
///
/// let limits = RateLimits::new(&MemoryStore::new()).headers(Headers::Ietf);
/// let app: Router = Router::new().route("/search", get(search)).layer(limits);
/// ```
///
/// A handler's limit is made at its first request, and once for all clones of this layer.
#[derive(Clone)]
#[must_use = "it does nothing until it is put on a router as a layer"]
pub struct RateLimits(Arc<Shared>);

struct Shared {
    settings: Settings,
    /// The layers made so far, by handler. Read by every request, so it takes no lock.
    made: ArcSwap<HashMap<usize, RateLimitLayer<Responder>>>,
    /// Held while a layer is made; the handlers whose limit could not be made, and for which that was logged.
    failed: Mutex<HashSet<usize>>,
}

#[derive(Clone)]
struct Settings {
    store: Arc<dyn Store>,
    headers: Headers,
    respond: Responder,
}

impl RateLimits {
    /// Limits on this store, with [`Headers::All`] and [`ProblemJson`] refusals.
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Self {
        let respond = Responder(Arc::new(ProblemJson::new()));
        Self::with(Settings { store: store.into(), headers: Headers::All, respond })
    }

    /// Which header fields responses carry. Default: [`Headers::All`].
    pub fn headers(self, headers: Headers) -> Self {
        Self::with(Settings { headers, ..self.0.settings.clone() })
    }

    /// Who makes the response to a refused request: a closure, or a type of yours. Default: [`ProblemJson`].
    pub fn respond(self, respond: impl Respond<Body>) -> Self {
        Self::with(Settings { respond: Responder(Arc::new(respond)), ..self.0.settings.clone() })
    }

    fn with(settings: Settings) -> Self {
        Self(Arc::new(Shared { settings, made: ArcSwap::default(), failed: Mutex::default() }))
    }

    /// The layer that an attribute stands for: made now, if this is its handler's first request.
    pub(super) fn layer_of(
        &self,
        attribute: &'static Attribute,
    ) -> Result<RateLimitLayer<Responder>, ConfigError> {
        let id = attribute.id();
        if let Some(layer) = self.0.made.load().get(&id) {
            return Ok(layer.clone());
        }
        let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have been first.
        let made = self.0.made.load_full();
        if let Some(layer) = made.get(&id) {
            return Ok(layer.clone());
        }
        match self.0.settings.make(attribute) {
            Ok(layer) => {
                let mut made = HashMap::clone(&made);
                made.insert(id, layer.clone());
                self.0.made.store(Arc::new(made));
                Ok(layer)
            }
            Err(error) => {
                if failed.insert(id) {
                    tracing::error!(handler = attribute.handler(), "`#[rate_limited]`: {error}");
                }
                Err(error)
            }
        }
    }
}

impl Settings {
    fn make(&self, attribute: &Attribute) -> Result<RateLimitLayer<Responder>, ConfigError> {
        let mut limits = attribute.make(&self.store)?.into_iter();
        let first = limits
            .next()
            .ok_or_else(|| ConfigError::new(ConfigErrorKind::Layer, "the attribute names no limit"))?;
        let builder = limits.fold(RateLimitLayer::builder(first), |builder, limit| builder.and(limit));
        builder.headers(self.headers).respond(self.respond.clone()).build()
    }
}

impl<S> Layer<S> for RateLimits {
    type Service = AddExtension<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Extension(self.clone()).layer(inner)
    }
}

impl fmt::Debug for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimits").field("handlers", &self.0.made.load().len()).finish_non_exhaustive()
    }
}

/// Any responder, so that all handlers of a router have layers of one type.
#[derive(Clone)]
pub(super) struct Responder(Arc<dyn Respond<Body>>);

impl Respond<Body> for Responder {
    fn respond(&self, refusal: &Refusal<'_>) -> Response {
        self.0.respond(refusal)
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder")
    }
}
