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
use sluicegate_tower::{ProblemJson, RateLimitLayer, RateLimitLayerBuilder, Refusal, Respond};
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
/// let limits = RateLimits::new(&MemoryStore::new()).configure(|layer| layer.headers(Headers::Ietf));
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
    made: ArcSwap<HashMap<usize, RateLimitLayer<BoxRespond>>>,
    /// Held while a layer is made; the handlers whose limit could not be made, and for which that was logged.
    failed: Mutex<HashSet<usize>>,
}

type Builder = RateLimitLayerBuilder<BoxRespond>;

#[derive(Clone)]
struct Settings {
    store: Arc<dyn Store>,
    respond: BoxRespond,
    configure: Arc<dyn Fn(Builder) -> Builder + Send + Sync>,
}

impl RateLimits {
    /// Limits on this store, in layers as [`RateLimitLayer::new`] makes them.
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Self {
        let respond = BoxRespond(Arc::new(ProblemJson::new()));
        Self::with(Settings { store: store.into(), respond, configure: Arc::new(|layer| layer) })
    }

    /// Who makes the response to a refused request: a closure, or a type of yours. Default: [`ProblemJson`].
    pub fn respond(self, respond: impl Respond<Body>) -> Self {
        Self::with(Settings { respond: BoxRespond(Arc::new(respond)), ..self.0.settings.clone() })
    }

    /// Settings that the layer of every handler gets, such as its [`headers`](RateLimitLayerBuilder::headers). Default:
    /// those of [`RateLimitLayer::builder`].
    pub fn configure<F>(self, configure: F) -> Self
    where
        F: Fn(RateLimitLayerBuilder<BoxRespond>) -> RateLimitLayerBuilder<BoxRespond> + Send + Sync + 'static,
    {
        let before = Arc::clone(&self.0.settings.configure);
        let configure = Arc::new(move |layer| configure(before(layer)));
        Self::with(Settings { configure, ..self.0.settings.clone() })
    }

    fn with(settings: Settings) -> Self {
        Self(Arc::new(Shared { settings, made: ArcSwap::default(), failed: Mutex::default() }))
    }

    /// The layer that an attribute stands for: made now, if this is its handler's first request.
    pub(super) fn layer_of(
        &self,
        attribute: &'static Attribute,
    ) -> Result<RateLimitLayer<BoxRespond>, ConfigError> {
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
    fn make(&self, attribute: &Attribute) -> Result<RateLimitLayer<BoxRespond>, ConfigError> {
        let mut limits = attribute.make(&self.store)?.into_iter();
        let first = limits
            .next()
            .ok_or_else(|| ConfigError::new(ConfigErrorKind::Layer, "the attribute names no limit"))?;
        let builder = limits.fold(RateLimitLayer::builder(first), |builder, limit| builder.and(limit));
        (self.configure)(builder.respond(self.respond.clone())).build()
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

/// Any responder, so that the handlers of all routers have layers of one type; made by [`RateLimits`].
#[derive(Clone)]
pub struct BoxRespond(Arc<dyn Respond<Body>>);

impl Respond<Body> for BoxRespond {
    fn respond(&self, refusal: &Refusal<'_>) -> Response {
        self.0.respond(refusal)
    }
}

impl fmt::Debug for BoxRespond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxRespond")
    }
}
