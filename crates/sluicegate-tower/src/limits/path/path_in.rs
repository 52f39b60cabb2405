//! Whether the path of a request is one of a list: [`path_in`], [`path_not_in`], [`PathReading`].

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate_core::ConfigError;

use super::pattern::PathPattern;
use super::reading::{Fold, Sense};
use super::spelling::{has_dots, is_plain, spellings};
use crate::key::RequestView;
use crate::key::extraction::Purpose;

/// Whether the path of a request matches one of these patterns, which rules files also use.
///
/// | pattern | matches |
/// |---|---|
/// | `/login` | this path |
/// | `/users/{id}/posts` | any one segment in place of `{id}`, as in axum |
/// | `/files/*`, `/files/{*rest}` | everything below: `/files/a`, `/files/a/b` and `/files/` itself, but not `/files`. Axum's `{*rest}` does not take `/files/` |
/// | `/api*`, `*.js`, `/a/*.js`, `/a/**/b` | any text in place of a `*` at the end or in front and of `**`, and any within a segment in place of another `*` |
///
/// A path is compared in its normal form, without the query: `//login`, `/%6cogin` and `/login;x=1` are `/login`. An encoded
/// slash, `%2F`, does not separate. Case and a trailing slash make a difference, unless a [`PathReading`] says otherwise. In a nested axum
/// router the path is the whole path that the client asked for, as in [`RequestView::path`].
///
/// # Ambiguous paths
/// Servers disagree about the target of `/a/../b`. The comparison depends on the place of the condition:
///
/// | in | it matches |
/// |---|---|
/// | `only_if`, and everywhere else | as written, or with its dots resolved |
/// | [`deny`](crate::limits::LimitsBuilder::deny) | also in the reading of a server that takes `%2F` or a backslash for a slash; case and a trailing slash are ignored |
/// | [`exempt`](crate::limits::LimitsBuilder::exempt) | only if it matches as written and in every reading of a server; never with dots |
///
/// So do not negate it with `!` in a closure: use [`path_not_in`], which is right for all readings.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::limits::path_in;
///
/// let billed = path_in(["/reports", "/users/{id}/reports", "/export/*"])?;
/// let asks = |path: &str| Request::get(path).body(()).map(|request| billed((&request).into()));
/// assert!(asks("/reports?year=2026")? && asks("//reports;v=1")? && asks("/x/../reports")?);
/// assert!(asks("/users/7/reports")? && asks("/export/a/b.csv")?);
/// assert!(!asks("/reports/")? && !asks("/Reports")? && !asks("/users/7")? && !asks("/export")?);
///
/// let error = path_in(["reports"]).err().map(|error| error.to_string());
/// assert_eq!(error.as_deref(), Some("the path \"reports\" begins with no slash: write \"/reports\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When a pattern could never match, or would match other paths than it appears to: it does not begin with `/`, is not in the normal form,
/// has a query, or has a brace that is not a whole segment. The message names the pattern and a correction.
pub fn path_in<P: Into<String>>(
    patterns: impl IntoIterator<Item = P>,
) -> Result<impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError> {
    PathReading::new().path_in(patterns)
}

/// Whether the path of a request matches none of these patterns, written as for [`path_in`]: `not: { path: .. }` of a rules file.
///
/// In doubt it is the opposite, too: a path with dots is not in the list if one of its readings is not.
///
/// ```
/// use http::Request;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::limits::{Limits, path_not_in};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let api = Policy::gcra("api", "100/min").on(&MemoryStore::new())?;
/// let limits = Limits::builder(sluicegate_tower::Limit::new(api).key(sluicegate_core::Key::from("all")))
///     .deny(path_not_in(["/health", "/api/*"])?)
///     .build()?;
/// assert!(limits.decide(&Request::get("/api/users").body(())?).await.is_ok());
/// for path in ["/admin", "/api/../admin", "/API/users"] {
///     assert!(limits.decide(&Request::get(path).body(())?).await.is_err());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As those of [`path_in`].
pub fn path_not_in<P: Into<String>>(
    patterns: impl IntoIterator<Item = P>,
) -> Result<impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError> {
    PathReading::new().path_not_in(patterns)
}

/// The differences between paths that the inner service ignores.
///
/// If a server serves `/LOGIN` and `/login/` as `/login`, a limit on `/login` has to count all three. In a rules file, `paths` sets
/// this.
///
/// The default depends on the place: denials ignore case and a trailing slash, limits and exemptions do not.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::limits::PathReading;
///
/// let login = PathReading::new().ignore_case().ignore_trailing_slash().path_in(["/login"])?;
/// let asks = |path: &str| Request::get(path).body(()).map(|request| login((&request).into()));
/// assert!(asks("/login")? && asks("/LOGIN")? && asks("/login/")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "it says how paths are compared by its path_in and path_not_in"]
pub struct PathReading {
    ignores_case: Option<bool>,
    ignores_trailing_slash: Option<bool>,
}

impl PathReading {
    /// Case and a trailing slash make a difference, except for denials.
    pub const fn new() -> Self {
        Self { ignores_case: None, ignores_trailing_slash: None }
    }

    /// Ignores the case of ASCII letters everywhere.
    pub const fn ignore_case(mut self) -> Self {
        self.ignores_case = Some(true);
        self
    }

    /// Compares with case, also for denials.
    pub const fn keep_case(mut self) -> Self {
        self.ignores_case = Some(false);
        self
    }

    /// Treats `/login/` and `/login` as the same path everywhere; then `/files/*` matches `/files` as well.
    pub const fn ignore_trailing_slash(mut self) -> Self {
        self.ignores_trailing_slash = Some(true);
        self
    }

    /// Distinguishes `/login/` from `/login`, also for denials.
    pub const fn keep_trailing_slash(mut self) -> Self {
        self.ignores_trailing_slash = Some(false);
        self
    }

    /// As the function [`path_in`], read in this way.
    ///
    /// # Errors
    /// As those of [`path_in`].
    pub fn path_in<P: Into<String>>(
        self,
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError> {
        let list = List::new(self, patterns, Sense::In)?;
        Ok(move |request: RequestView<'_>| list.holds(request))
    }

    /// As the function [`path_not_in`], read in this way.
    ///
    /// # Errors
    /// As those of [`path_in`].
    pub fn path_not_in<P: Into<String>>(
        self,
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError> {
        let list = List::new(self, patterns, Sense::NotIn)?;
        Ok(move |request: RequestView<'_>| list.holds(request))
    }

    /// The differences between paths and patterns that are ignored. By default, an ambiguous path is denied and not exempt.
    #[doc(hidden)]
    pub fn fold(self, purpose: Purpose, sense: Sense) -> Fold {
        let is_doubtful = is_doubtful(purpose, sense);
        Fold {
            case: self.ignores_case.unwrap_or(is_doubtful),
            trailing_slash: self.ignores_trailing_slash.unwrap_or(is_doubtful),
        }
    }
}

/// Patterns that a path has to match, or must not match.
#[derive(Clone)]
struct List {
    sense: Sense,
    /// The patterns for strict and for loose readings.
    patterns: [Patterns; 2],
}

/// Patterns with the fold that was applied to them.
#[derive(Clone)]
struct Patterns {
    fold: Fold,
    each: Arc<[PathPattern]>,
}

impl List {
    fn new<P: Into<String>>(
        reading: PathReading,
        patterns: impl IntoIterator<Item = P>,
        sense: Sense,
    ) -> Result<Self, ConfigError> {
        let texts: Vec<String> = patterns.into_iter().map(Into::into).collect();
        let folded = |purpose| -> Result<Patterns, ConfigError> {
            let fold = reading.fold(purpose, sense);
            let each: Result<_, _> = texts.iter().map(|text| PathPattern::new(text, fold)).collect();
            Ok(Patterns { fold, each: each? })
        };
        let doubtful = if sense == Sense::In { Purpose::Deny } else { Purpose::Exempt };
        Ok(Self { sense, patterns: [folded(Purpose::Limit)?, folded(doubtful)?] })
    }

    #[inline]
    fn holds(&self, request: RequestView<'_>) -> bool {
        let (path, purpose) = (request.path(), request.purpose());
        let patterns = &self.patterns[usize::from(is_doubtful(purpose, self.sense))];
        if is_plain(path) && patterns.fold.is_exact() {
            return patterns.have(path) == (self.sense == Sense::In);
        }
        self.holds_in_doubt(patterns, path, purpose)
    }

    fn holds_in_doubt(&self, patterns: &Patterns, path: &str, purpose: Purpose) -> bool {
        let is_met = |spelling: &Cow<'_, str>| {
            let path = patterns.fold.apply(&**spelling);
            patterns.have(&path) == (self.sense == Sense::In)
        };
        let all = spellings(path, purpose);
        match purpose {
            Purpose::Exempt => !has_dots(path) && all.iter().all(is_met),
            Purpose::Limit | Purpose::Deny => all.iter().any(is_met),
        }
    }
}

impl Patterns {
    /// Whether one of them matches a path to which the fold has been applied.
    #[inline]
    fn have(&self, path: &str) -> bool {
        self.each.iter().any(|pattern| pattern.matches(path))
    }
}

/// Whether an ambiguous path is read as loosely as by any server, so that it is denied and not exempt.
fn is_doubtful(purpose: Purpose, sense: Sense) -> bool {
    matches!((purpose, sense), (Purpose::Deny, Sense::In) | (Purpose::Exempt, Sense::NotIn))
}
