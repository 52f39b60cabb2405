//! What an attribute says, and the layer that it stands for.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{Extensions, StatusCode};
use axum::response::{IntoResponse, Response};
use sluicegate_core::{ConfigError, Store};
use sluicegate_tower::{KeyExtractor, Limit, OnMissingKey, RateLimitLayer};

use super::limits::{BoxRespond, RateLimits};

type MakeLimits = fn(&Arc<dyn Store>) -> Result<Vec<Limit>, ConfigError>;

/// The limits of one handler, on whatever store its router has: a static that `#[rate_limited]` makes.
pub struct Attribute {
    handler: &'static str,
    limits: MakeLimits,
    /// Whether it was logged that a router has no store.
    warned: AtomicBool,
}

impl Attribute {
    /// The limits of the function called `handler`.
    pub const fn new(handler: &'static str, limits: MakeLimits) -> Self {
        Self { handler, limits, warned: AtomicBool::new(false) }
    }

    /// The layer of this handler on the store that its router has.
    pub(super) fn layer(
        &'static self,
        extensions: &Extensions,
    ) -> Result<RateLimitLayer<BoxRespond>, Unlimited> {
        let made = match extensions.get::<RateLimits>() {
            Some(limits) => limits.layer_of(self).map_err(|error| error.to_string()),
            None => Err(self.no_store()),
        };
        made.map_err(|problem| Unlimited { handler: self.handler, problem })
    }

    /// The function's path.
    pub(super) fn handler(&self) -> &'static str {
        self.handler
    }

    pub(super) fn make(&self, store: &Arc<dyn Store>) -> Result<Vec<Limit>, ConfigError> {
        (self.limits)(store)
    }

    /// Tells handlers apart: statics that can change never share an address.
    pub(super) fn id(&'static self) -> usize {
        ptr::from_ref(self).addr()
    }

    fn no_store(&self) -> String {
        let problem = "its router has no store for limits: add `.with_rate_limits(&store)` after its routes";
        // Relaxed: at worst two threads log.
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::error!(handler = self.handler, "`#[rate_limited]`: {problem}");
        }
        problem.to_owned()
    }
}

/// A handler whose limits cannot be kept, which is a mistake in the program: 500, and what to do.
#[derive(Debug)]
pub(super) struct Unlimited {
    handler: &'static str,
    problem: String,
}

impl IntoResponse for Unlimited {
    fn into_response(self) -> Response {
        let text = format!("the handler `{}` cannot be limited: {}", self.handler, self.problem);
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    }
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attribute").field(&self.handler).finish()
    }
}

/// What `key = ..` takes. `M` only keeps the two implementations apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose bucket a request spends from",
    label = "not a `KeyExtractor`, nor a `Result` of one",
    note = "write `key = Header::new(\"x-api-key\")`, `key = key_fn(|parts| ..)`, or any other `KeyExtractor`"
)]
pub trait IntoKey<M> {
    /// Puts the key on a limit.
    ///
    /// # Errors
    /// The one that the extractor was made with.
    fn put_on(self, limit: Limit) -> Result<Limit, ConfigError>;
}

/// An extractor as it is.
#[derive(Debug)]
#[non_exhaustive]
pub struct Direct;

/// An extractor whose making may fail.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fallible;

// Otherwise the compiler would only say what is missing to be a `KeyExtractor`.
#[diagnostic::do_not_recommend]
impl<K: KeyExtractor> IntoKey<Direct> for K {
    fn put_on(self, limit: Limit) -> Result<Limit, ConfigError> {
        Ok(limit.key(self))
    }
}

impl<K: KeyExtractor> IntoKey<Fallible> for Result<K, ConfigError> {
    fn put_on(self, limit: Limit) -> Result<Limit, ConfigError> {
        Ok(limit.key(self?))
    }
}

/// Refuses requests without a key with this status, which the attribute has checked.
pub fn reject(status: u16) -> OnMissingKey {
    OnMissingKey::Reject(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST))
}
