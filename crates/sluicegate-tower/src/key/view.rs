//! A request without its body, looked at and not taken apart: [`RequestView`].
//!
//! Nothing is moved out of the request and put back, so a body of any type works, and looking costs
//! a few pointers.

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request, by reference: for extractors, conditions, costs and responders.
///
/// Made from a `&Request<B>` or a `&Parts`, at the cost of a few pointers.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::key::RequestView;
///
/// fn is_search(request: RequestView<'_>) -> bool {
///     request.uri.path() == "/search"
/// }
///
/// let request = Request::get("/search?q=sluice").body("no part of the view")?;
/// assert!(is_search(RequestView::from(&request)));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestView<'a> {
    /// The method.
    pub method: &'a Method,
    /// The URI as it is at this place: a nested axum router has cut off its prefix; see [`path`](Self::path).
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// Values that servers and middleware in front have left for those behind them.
    pub extensions: &'a Extensions,
}

impl<'a> RequestView<'a> {
    /// The path that the client asked for. In a nested axum router that is the whole path, with the prefix that the router has
    /// cut off from its URI.
    #[inline]
    pub fn path(self) -> &'a str {
        #[cfg(feature = "axum")]
        if let Some(axum::extract::OriginalUri(uri)) = self.extensions.get() {
            return uri.path();
        }
        self.uri.path()
    }

    /// The route of an axum router that the request has matched, such as `/users/{id}`: none without axum.
    #[inline]
    pub fn route(self) -> Option<&'a str> {
        #[cfg(feature = "axum")]
        return self.extensions.get::<axum::extract::MatchedPath>().map(|route| route.as_str());
        #[cfg(not(feature = "axum"))]
        None
    }

    /// A copy that can be kept, for code that wants [`Parts`]: it clones the header fields and the extensions.
    pub fn to_parts(self) -> Parts {
        let mut parts = Request::new(()).into_parts().0;
        parts.method = self.method.clone();
        parts.uri = self.uri.clone();
        parts.version = self.version;
        parts.headers = self.headers.clone();
        parts.extensions = self.extensions.clone();
        parts
    }
}

impl<'a, B> From<&'a Request<B>> for RequestView<'a> {
    #[inline]
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a Parts> for RequestView<'a> {
    #[inline]
    fn from(Parts { method, uri, version, headers, extensions, .. }: &'a Parts) -> Self {
        Self { method, uri, version: *version, headers, extensions }
    }
}
