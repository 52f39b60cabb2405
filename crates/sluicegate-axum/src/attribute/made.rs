//! The limits of one handler, made at run time: the decider, the responder, and the limiters.

use std::sync::Arc;

use axum::body::Body;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, RateLimiter, Store};
use sluicegate_tower::limits::{Limits, LimitsBuilder};
use sluicegate_tower::respond::Respond;

use super::source::{Attribute, ReadVariable, Source};

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
