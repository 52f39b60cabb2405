//! The content of an attribute, a static that `#[rate_limited]` makes, and the limits that are made of it at run time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, ptr};

use axum::body::Body;
use axum::http::StatusCode;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, Quota, RateLimiter, Store};
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::limits::{Limits, LimitsBuilder};
use sluicegate_tower::respond::Respond;
use sluicegate_tower::{KeyExtractor, Limit};

use super::name;

/// The limits of one handler, on the store of its router.
pub struct Attribute {
    path: &'static str,
    place: &'static str,
    drafts: &'static [Draft],
    /// Whether the warning about a router without a store was logged.
    warned: AtomicBool,
}

impl Attribute {
    /// The limits of the function with this path, at this position in the source.
    pub const fn new(path: &'static str, place: &'static str, drafts: &'static [Draft]) -> Self {
        Self { path, place, drafts, warned: AtomicBool::new(false) }
    }

    /// Whether to log that a router has no store: true once.
    pub(super) fn warns(&self) -> bool {
        // Relaxed: at worst two threads log.
        !self.warned.swap(true, Ordering::Relaxed)
    }

    /// The function's path.
    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    pub(super) fn drafts(&self) -> &'static [Draft] {
        self.drafts
    }

    /// The name that a limit has by default.
    pub(super) fn default_name(&self) -> String {
        name::of_path(self.path)
    }

    /// Identifies the handler: mutable statics never share an address.
    pub(super) fn id(&'static self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// Names the handler and its place in the source, for an operator.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` at {}", self.path, self.place)
    }
}

sluicegate_core::debug_as!(Attribute { path });

/// One limit of an attribute.
#[derive(Debug)]
pub struct Draft {
    name: Option<&'static str>,
    variables: &'static [&'static str],
    make: MakeLimit,
}

type MakeLimit = fn(&Source<'_>, &str) -> Result<(RateLimiter, Limit), ConfigError>;

impl Draft {
    /// A limit with this name, or its handler's, and the variables that `make` reads.
    pub const fn new(
        name: Option<&'static str>,
        variables: &'static [&'static str],
        make: MakeLimit,
    ) -> Self {
        Self { name, variables, make }
    }

    /// The name that the attribute gives to the limit.
    pub(super) fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// Makes the limit under a name. An error contains the names and the values of the variables.
    pub(super) fn make(&self, source: &Source<'_>, name: &str) -> Result<(RateLimiter, Limit), ConfigError> {
        (self.make)(source, name).map_err(|error| {
            let set =
                self.variables.iter().filter_map(|name| Some(format!("{name}={:?}", source.value(name)?)));
            match &*set.collect::<Vec<_>>() {
                [] => error,
                set => ConfigError::new(
                    error.kind(),
                    format!("{error}; the environment says {}", set.join(" and ")),
                ),
            }
        })
    }
}

/// Looks up a variable of the environment.
pub(super) type ReadVariable = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The parts that a limit is made from.
pub struct Source<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) variables: &'a ReadVariable,
}

impl Source<'_> {
    /// The store that keeps the limit's state.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.store
    }

    /// The quota in a variable, or the default if the variable is not set.
    ///
    /// # Errors
    /// When there is neither a value nor a default, and when the text is not a quota.
    pub fn quota(&self, variable: &str, default: Option<&str>) -> Result<Quota, ConfigError> {
        match (self.value(variable), default) {
            (Some(text), _) => text.parse(),
            (None, Some(default)) => default.parse(),
            (None, None) => Err(ConfigError::new(
                ConfigErrorKind::Quota,
                format!(
                    "the environment variable {variable} is not set: set it to a quota, such as {variable}=5/min"
                ),
            )),
        }
    }

    fn value(&self, variable: &str) -> Option<String> {
        (self.variables)(variable)
    }
}

sluicegate_core::debug_as!(Source<'a> {});

/// State that the handlers of a router share.
#[derive(Clone)]
pub(super) struct StoreSettings {
    pub(super) store: Arc<dyn Store>,
    pub(super) variables: ReadVariable,
    pub(super) respond: Arc<dyn Respond<Body>>,
    pub(super) configure: Arc<dyn Fn(LimitsBuilder) -> LimitsBuilder + Send + Sync>,
}

/// The limits of a handler.
pub(super) struct MadeLimits {
    pub(super) attribute: &'static Attribute,
    pub(super) limits: Limits,
    pub(super) respond: Arc<dyn Respond<Body>>,
    pub(super) limiters: Vec<RateLimiter>,
}

impl MadeLimits {
    /// Makes the limits of a handler; `others` are the other limits of the same router.
    pub(super) fn new<'a>(
        attribute: &'static Attribute,
        settings: &StoreSettings,
        others: impl Iterator<Item = &'a Self> + Clone,
    ) -> Result<Self, ConfigError> {
        let source = Source { store: &settings.store, variables: &settings.variables };
        let (mut limiters, mut limits) = (Vec::<RateLimiter>::new(), Vec::new());
        for draft in attribute.drafts() {
            let name = match draft.name() {
                Some(given) => given.to_owned(),
                None => default_name(attribute, others.clone())?,
            };
            if limiters.iter().any(|limiter| limiter.policy().name() == name) {
                return Err(taken(format!(
                    "two limits of this handler are called {name:?}: give each a name of its own with `name = \"..\"`"
                )));
            }
            let (limiter, limit) =
                draft.make(&source, &name).map_err(|error| with_owner(error, &name, others.clone()))?;
            limiters.push(limiter);
            limits.push(limit);
        }
        let mut limits = limits.into_iter();
        let first = limits
            .next()
            .ok_or_else(|| ConfigError::new(ConfigErrorKind::Layer, "the attribute names no limit"))?;
        let builder = limits.fold(Limits::builder(first), |builder, limit| builder.and(limit));
        let limits = (settings.configure)(builder).build()?;
        Ok(Self { attribute, limits, respond: Arc::clone(&settings.respond), limiters })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.limiters.iter().map(|limiter| limiter.policy().name().to_owned())
    }
}

/// The default name of a limit. Two functions with one name in one module, such as methods of two types, are an error, because they would
/// share their buckets unintentionally.
fn default_name<'a>(
    attribute: &'static Attribute,
    mut others: impl Iterator<Item = &'a MadeLimits>,
) -> Result<String, ConfigError> {
    let name = attribute.default_name();
    let is_unnamed = |made: &&MadeLimits| made.attribute.drafts().iter().any(|draft| draft.name().is_none());
    match others.find(|made| is_unnamed(made) && made.attribute.default_name() == name) {
        Some(other) => Err(taken(format!(
            "a limit of {attribute} and one of {} are both called {name:?}: give one of them a `name = \"..\"`",
            other.attribute
        ))),
        None => Ok(name),
    }
}

/// Adds the handler that has taken a name to the store's error, which does not know handlers.
fn with_owner<'a>(
    error: ConfigError,
    name: &str,
    mut others: impl Iterator<Item = &'a MadeLimits>,
) -> ConfigError {
    if error.kind() != ConfigErrorKind::NameTaken {
        return error;
    }
    match others.find(|made| made.names().any(|other| other == name)) {
        Some(other) => taken(format!("{error}; it is the limit of {}", other.attribute)),
        None => error,
    }
}

fn taken(message: String) -> ConfigError {
    ConfigError::new(ConfigErrorKind::NameTaken, message)
}

/// A value of `key = ..`. `M` only keeps the two implementations apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose bucket a request spends from",
    label = "not a `KeyExtractor`, nor a `Result` of one",
    note = "write `key = HeaderKey::new(\"x-api-key\")`, `key = key_fn(|request| ..)`, or any other `KeyExtractor`"
)]
pub trait IntoKey<M> {
    /// Puts the key on a limit.
    ///
    /// # Errors
    /// The error with which the extractor was made.
    fn put_on(self, limit: Limit) -> Result<Limit, ConfigError>;
}

/// An extractor that is not in a `Result`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Direct;

/// A `Result` of an extractor.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fallible;

// Otherwise the compiler would only report the missing `KeyExtractor`.
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
