//! The store that a router has for its handlers' limits: [`RateLimitStore`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use axum::Extension;
use axum::body::Body;
use axum::http::Extensions;
use axum::middleware::AddExtension;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::store::IntoStore;
use sluicegate_core::support::lock;
use sluicegate_core::{ConfigError, RateLimiter};
use sluicegate_tower::limits::LimitsBuilder;
use sluicegate_tower::respond::{IntoRefusalResponse, ProblemJson, Refusal, Respond};
use tower_layer::Layer;

use super::run::{Attributed, ask};
use super::source::{Attribute, MadeLimits, ReadVariable, StoreSettings};

/// The store on which the `#[rate_limited]` handlers of a router keep their limits: a layer for that router.
///
/// `.with_rate_limits(&store)` is the short way. Use this type for settings that all handlers share. Like every axum
/// layer it covers the routes that were added before it; if there are several around one handler, the innermost counts.
///
/// ```
/// use axum::{Router, routing::get};
/// use sluicegate_axum::{RateLimitStore, rate_limited};
/// use sluicegate_core::MemoryStore;
/// use sluicegate_tower::respond::HeaderFields;
///
/// #[rate_limited("5/min", crate = sluicegate_axum)]
/// async fn search() -> &'static str {
///     "nothing found"
/// }
///
/// let limits = RateLimitStore::new(&MemoryStore::new()).configure(|limits| limits.headers(HeaderFields::Ietf));
/// let app: Router = Router::new().route("/search", get(search)).layer(limits);
/// ```
///
/// # Finding mistakes before the first request
/// The compiler sees one handler at a time, and axum does not tell a layer the handlers behind it. So a handler's
/// limit is made at its first request, unless it is [opened](Self::open) when the router is built. Then a wrong
/// environment variable, a key that cannot be made, and two quotas under one name are errors at the start. At a
/// request they are logged, and answered with a plain 500:
///
/// ```
/// use axum::{Router, routing::post};
/// use sluicegate_axum::{RateLimitStore, rate_limited};
/// use sluicegate_core::{ConfigError, MemoryStore};
///
/// #[rate_limited(quota = env("LOGIN_LIMIT", "5/min"), name = "login", crate = sluicegate_axum)]
/// async fn login() {}
///
/// #[rate_limited("10/h", name = "signup", crate = sluicegate_axum)]
/// async fn sign_up() {}
///
/// fn app() -> Result<Router, ConfigError> {
///     let limits = RateLimitStore::new(&MemoryStore::new()).open(login)?.open(sign_up)?;
///     let routes = Router::new().route("/login", post(login)).route("/signup", post(sign_up));
///     Ok(routes.layer(limits))
/// }
/// # app()?;
/// # Ok::<(), ConfigError>(())
/// ```
///
/// # Replacing a limit
/// [`limiter`](Self::limiter) gives the [`RateLimiter`] of a limit by its name, to `replace` its policy, to `reset` a
/// key or to `peek` at one while the service runs. Clones of this layer share their limiters.
#[derive(Clone)]
#[must_use = "it does nothing until it is put on a router as a layer"]
pub struct RateLimitStore(Arc<AttributeStore>);

struct AttributeStore {
    settings: StoreSettings,
    /// The limits made so far, by handler. Read by every request, so it takes no lock.
    made: ArcSwap<HashMap<usize, Arc<MadeLimits>>>,
    /// The errors that were logged about limits that could not be made. Locked while a limit is made.
    failed: Mutex<HashMap<usize, String>>,
    /// Whether handlers are opened when the router is built, so that none should be missing.
    is_listed: AtomicBool,
}

impl RateLimitStore {
    /// Limits on this store, with the defaults of [`RateLimitLayer::new`](sluicegate_tower::RateLimitLayer::new).
    pub fn new(store: impl IntoStore) -> Self {
        let respond = Arc::new(ProblemJson::new());
        let variables: ReadVariable = Arc::new(|name| std::env::var(name).ok());
        let configure = Arc::new(|limits| limits);
        Self(Arc::new(AttributeStore::new(StoreSettings {
            store: store.into(),
            variables,
            respond,
            configure,
        })))
    }

    /// Sets a closure that makes the response to a refused request, as
    /// [that of a layer](sluicegate_tower::rate_limit::RateLimitLayerBuilder::respond). Default: [`ProblemJson`].
    pub fn respond<F, T>(self, respond: F) -> Self
    where
        F: Fn(&Refusal<'_>) -> T + Send + Sync + 'static,
        T: IntoRefusalResponse<Body>,
    {
        self.responder(respond)
    }

    /// As [`respond`](Self::respond), with a type that implements [`Respond`].
    pub fn responder(self, respond: impl Respond<Body>) -> Self {
        self.with(|settings| settings.respond = Arc::new(respond))
    }

    /// Sets options for the limits of every handler, such as their [`headers`](LimitsBuilder::headers). Default:
    /// those of [`Limits::builder`](sluicegate_tower::limits::Limits::builder).
    pub fn configure<F>(self, configure: F) -> Self
    where
        F: Fn(LimitsBuilder) -> LimitsBuilder + Send + Sync + 'static,
    {
        self.with(|settings| {
            let before = Arc::clone(&settings.configure);
            settings.configure = Arc::new(move |limits| configure(before(limits)));
        })
    }

    /// Sets the lookup of variables for `quota = env("LOGIN_LIMIT")`. Default: the environment of the process. A variable is
    /// read when the handler's limit is made, and not again.
    pub fn variables(self, variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.variables = Arc::new(variables))
    }

    /// Makes the limits of a handler now, and not at its first request. Once a handler is opened, the first request to a
    /// handler that is not logs a warning.
    ///
    /// # Errors
    /// When a limit of the handler cannot be made: its name is taken by another handler's or by another policy of the
    /// store, its quota, key or cost is wrong, or the store cannot keep it. The message names the handler.
    pub fn open<T>(self, handler: impl Attributed<T>) -> Result<Self, ConfigError> {
        let attribute = ask(handler).ok_or_else(|| {
            ConfigError::new(
                ConfigErrorKind::Layer,
                "the handler does not answer which limits it has: put `#[rate_limited]` above attributes that wait before they call it",
            )
        })?;
        // Relaxed: it is set before the router serves; at worst a warning is missing.
        self.0.is_listed.store(true, Ordering::Relaxed);
        match self.0.made_of(attribute, false) {
            Ok(_) => Ok(self),
            Err(error) => {
                Err(ConfigError::new(error.kind(), format!("{attribute} cannot be limited: {error}")))
            }
        }
    }

    /// The limiter of a limit that was made, by its name.
    ///
    /// # Errors
    /// When no limit with this name was made. The message lists the names of limits that were made.
    pub fn limiter(&self, name: &str) -> Result<RateLimiter, ConfigError> {
        let made = self.0.made.load();
        let mut limiters = made.values().flat_map(|made| &made.limiters);
        limiters.find(|limiter| limiter.policy().name() == name).cloned().ok_or_else(|| {
            let mut names: Vec<String> = made.values().flat_map(|made| made.names()).collect();
            names.sort_unstable();
            ConfigError::new(
                ConfigErrorKind::Layer,
                format!(
                    "no limit is called {name:?}, of those that were made ({names:?}): open its handler first"
                ),
            )
        })
    }

    /// The limits of a handler on the store of its router, made now if this is its first request. A missing store, or an error,
    /// is logged for operators; clients do not see it.
    pub(super) fn made(extensions: &Extensions, attribute: &'static Attribute) -> Option<Arc<MadeLimits>> {
        let Some(Self(shared)) = extensions.get::<Self>() else {
            if attribute.warns() {
                tracing::error!(
                    handler = attribute.path(),
                    "`#[rate_limited]`: its router has no store for limits: add `.with_rate_limits(&store)` after its routes"
                );
            }
            return None;
        };
        if let Some(made) = shared.made.load().get(&attribute.id()) {
            return Some(Arc::clone(made));
        }
        shared.made_of(attribute, true).ok()
    }

    /// A copy with other settings. Existing limits are made anew, on their buckets.
    fn with(self, change: impl FnOnce(&mut StoreSettings)) -> Self {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        let shared = AttributeStore::new(settings);
        for made in self.0.made.load().values() {
            // A failure is logged now, and is returned at the first request.
            _ = shared.made_of(made.attribute, true);
        }
        // Relaxed: as in `open`.
        shared.is_listed.store(self.0.is_listed.load(Ordering::Relaxed), Ordering::Relaxed);
        Self(Arc::new(shared))
    }
}

impl AttributeStore {
    fn new(settings: StoreSettings) -> Self {
        Self {
            settings,
            made: ArcSwap::default(),
            failed: Mutex::default(),
            is_listed: AtomicBool::new(false),
        }
    }

    /// The limits of a handler, made now if they do not exist. If it is for a request, a failure is logged once.
    fn made_of(
        &self,
        attribute: &'static Attribute,
        is_logged: bool,
    ) -> Result<Arc<MadeLimits>, ConfigError> {
        let id = attribute.id();
        let mut failed = lock(&self.failed);
        // Another request may have been first.
        let made = self.made.load_full();
        if let Some(made) = made.get(&id) {
            return Ok(Arc::clone(made));
        }
        let handler = attribute.path();
        match MadeLimits::new(attribute, &self.settings, made.values().map(Arc::as_ref)) {
            Ok(new) => {
                // Relaxed: as in `open`.
                if is_logged && self.is_listed.load(Ordering::Relaxed) {
                    tracing::warn!(
                        handler,
                        "`#[rate_limited]`: others were opened with the router and this one was not: add `.open({handler})`"
                    );
                }
                let (new, mut all) = (Arc::new(new), HashMap::clone(&made));
                all.insert(id, Arc::clone(&new));
                self.made.store(Arc::new(all));
                Ok(new)
            }
            Err(error) => {
                let text = error.to_string();
                if is_logged && failed.get(&id) != Some(&text) {
                    tracing::error!(handler, "`#[rate_limited]`: {text}");
                    failed.insert(id, text);
                }
                Err(error)
            }
        }
    }
}

impl<S> Layer<S> for RateLimitStore {
    type Service = AddExtension<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Extension(self.clone()).layer(inner)
    }
}

sluicegate_core::debug_as!(RateLimitStore, store => store.0.made.load().len());
