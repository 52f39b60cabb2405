//! Whether the path of a request is one of a list: [`path_in`].

use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;

use crate::key::RequestView;

/// Whether the path of a request is one of these, or begins with one of these that ends in `*`.
///
/// Paths are compared as they came, byte by byte, without the query: `/health/` and `/Health` are not `/health`. A path
/// with `..`, `%` or `//` never matches a pattern with `*`, so that nobody gets past a limit by writing
/// `/public/../admin`. That is right for exempting; a path that is to be refused is better left out of the router.
///
/// Inside of a nested axum router the path is the whole path that the client asked for, as
/// [`RequestView::path`] has it.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::limits::path_in;
///
/// let open = path_in(["/health", "/metrics*"])?;
/// let asks = |path: &str| Request::get(path).body(()).map(|request| open((&request).into()));
/// assert!(asks("/health?verbose=1")? && asks("/metrics")? && asks("/metrics/cpu")?);
/// assert!(!asks("/health/")? && !asks("/metrics/../admin")?);
///
/// let error = path_in(["/api/{*rest}"]).err().map(|error| error.to_string());
/// assert_eq!(error.as_deref(), Some("\"/api/{*rest}\" matches no path: a path has no captures; write \"/api/*\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When one of them could never match: it does not begin with `/`, has a `*` before its end, a capture in braces, a query, or
/// a `*` behind `..`, `%` or `//`.
pub fn path_in<P: Into<String>>(
    paths: impl IntoIterator<Item = P>,
) -> Result<impl Fn(RequestView<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError> {
    let paths: Vec<String> =
        paths.into_iter().map(|path| checked(path.into())).collect::<Result<_, ConfigError>>()?;
    Ok(move |request: RequestView<'_>| {
        let path = request.path();
        paths.iter().any(|pattern| match pattern.strip_suffix('*') {
            None => path == pattern,
            Some(prefix) => path.starts_with(prefix) && is_plain(path),
        })
    })
}

/// Whether the path means what it says.
fn is_plain(path: &str) -> bool {
    !path.contains("..") && !path.contains('%') && !path.contains("//")
}

/// The pattern, if there are paths that it matches.
fn checked(pattern: String) -> Result<String, ConfigError> {
    let never = |why: &str, instead: &str| {
        let text = format!("{pattern:?} matches no path: {why}; write {instead:?}");
        Err(ConfigError::new(ConfigErrorKind::Layer, text))
    };
    let up_to = |end: usize| format!("{}*", &pattern[..end]);
    let prefix = pattern.strip_suffix('*').unwrap_or(&pattern);
    match (pattern.find(['{', '}']), prefix.find('*'), pattern.find(['?', '#'])) {
        _ if !pattern.starts_with('/') => never("a path begins with a slash", &format!("/{pattern}")),
        (_, _, Some(query)) => never("the query is no part of a path", &pattern[..query]),
        (Some(capture), ..) => never("a path has no captures", &up_to(capture)),
        (_, Some(star), _) => never("'*' stands at the end, for all that follows", &up_to(star)),
        _ if prefix != pattern && !is_plain(prefix) => {
            never("'*' takes no path with '..', '%' or '//'", prefix)
        }
        _ => Ok(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_could_never_match_is_refused_with_what_to_write() {
        for (pattern, advice) in [
            ("health", "begins with a slash; write \"/health\""),
            ("*", "begins with a slash; write \"/*\""),
            ("", "begins with a slash; write \"/\""),
            ("/api/**", "at the end, for all that follows; write \"/api/*\""),
            ("/users/*/posts", "at the end, for all that follows; write \"/users/*\""),
            ("/api/{*rest}", "no captures; write \"/api/*\""),
            ("/users/{id}", "no captures; write \"/users/*\""),
            ("/search?q=*", "query is no part of a path; write \"/search\""),
            ("/a/../b*", "'*' takes no path with '..', '%' or '//'; write \"/a/../b\""),
        ] {
            let error = path_in(["/health", pattern]).err().expect(pattern).to_string();
            assert!(error.starts_with(&format!("{pattern:?} matches no path")), "{error}");
            assert!(error.ends_with(advice), "{error}");
        }
        assert!(path_in(["/", "/*", "/health", "/metrics*", "/a%20b", "/v1/x:cancel", "/a//b"]).is_ok());
    }
}
