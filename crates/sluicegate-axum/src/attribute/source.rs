//! The content of an attribute: a static that `#[rate_limited]` makes.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, Quota, RateLimiter, Store};
use sluicegate_tower::Limit;

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

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attribute").field(&self.path).finish()
    }
}

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

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}
