//! The question to an extractor, and its answer: [`RequestView`] and [`Extraction`].
//!
//! Extractors borrow from the request, so a body of any type works, and a view costs a few pointers. The answer
//! is a key, none, or a key that has to be waited for.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};
use sluicegate_core::Key;

use crate::key::missing::MissingKey;

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
    /// The current URI: a nested axum router has cut off its prefix; see [`path`](Self::path).
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// Values that the server and outer middleware have added.
    pub extensions: &'a Extensions,
    /// The purpose of the view, which decides ambiguous paths.
    purpose: Purpose,
}

impl<'a> RequestView<'a> {
    /// The path that the client asked for. In a nested axum router it is the whole path, including the prefix that the router has
    /// removed from its URI.
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

    /// The view of the request for this purpose.
    #[inline]
    pub(crate) const fn asked_for(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    #[inline]
    pub(crate) const fn purpose(self) -> Purpose {
        self.purpose
    }

    /// A copy that can be kept, for code that needs [`Parts`]: it clones the header fields and the extensions.
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
            purpose: Purpose::Limit,
        }
    }
}

impl<'a> From<&'a Parts> for RequestView<'a> {
    #[inline]
    fn from(Parts { method, uri, version, headers, extensions, .. }: &'a Parts) -> Self {
        Self { method, uri, version: *version, headers, extensions, purpose: Purpose::Limit }
    }
}

/// The reason why a path is matched, which decides ambiguous paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "rules files have these three sections")]
pub enum Purpose {
    /// A limit: one spelling that matches is enough.
    #[default]
    Limit,
    /// A denial: one spelling that matches is enough, in any case, with or without a trailing slash.
    Deny,
    /// An exemption: all spellings have to match.
    Exempt,
}

/// The result of an extractor.
///
/// ```
/// use sluicegate_core::Key;
/// use sluicegate_tower::key::Extraction;
///
/// assert_eq!(Extraction::found("ada").now().expect("it is known"), Ok(Key::from("ada")));
/// let missing = Extraction::missing("the header x-user is missing").now().expect("it is known");
/// assert_eq!(missing.unwrap_err().reason(), "the header x-user is missing");
/// ```
#[must_use = "an extraction says whose bucket it is"]
pub struct Extraction(Result<Result<Key, MissingKey>, PendingKey>);

type PendingKey = Pin<Box<dyn Future<Output = Result<Key, MissingKey>> + Send>>;

impl Extraction {
    /// A key.
    #[inline]
    pub fn found(key: impl Into<Key>) -> Self {
        Self(Ok(Ok(key.into())))
    }

    /// No key; see [`MissingKey::new`].
    pub fn missing(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(Ok(Err(MissingKey::new(reason))))
    }

    /// A key that has to be waited for. A layer waits up to its `longest_lookup`, and then refuses the
    /// request with 503.
    pub fn pending(future: impl Future<Output = Result<Key, MissingKey>> + Send + 'static) -> Self {
        Self(Err(Box::pin(future)))
    }

    /// Both keys as one.
    pub(super) fn and(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Ok(first), Ok(second)) => Self(Ok(together(first, second))),
            (first, second) => Self::pending(async move {
                match Self(first).await {
                    Err(missing) if missing.reject().is_some() => Err(missing),
                    first => together(first, Self(second).await),
                }
            }),
        }
    }

    /// The result if it is known, or the extraction that has to be polled.
    ///
    /// # Errors
    /// The extraction itself, if it is still pending.
    #[inline]
    pub fn now(self) -> Result<Result<Key, MissingKey>, Self> {
        self.0.map_err(|pending| Self(Err(pending)))
    }

    /// The key, if it is at hand.
    #[inline]
    pub(crate) fn key(&mut self) -> Option<&mut Key> {
        match &mut self.0 {
            Ok(key) => key.as_mut().ok(),
            Err(_) => None,
        }
    }
}

impl Future for Extraction {
    type Output = Result<Key, MissingKey>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(result) => Poll::Ready(result.clone()),
            Err(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Extraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(result) => f.debug_tuple("Extraction").field(result).finish(),
            Err(_) => f.write_str("Extraction(..)"),
        }
    }
}

impl From<Result<Key, MissingKey>> for Extraction {
    fn from(found: Result<Key, MissingKey>) -> Self {
        Self(Ok(found))
    }
}

impl From<MissingKey> for Extraction {
    fn from(missing: MissingKey) -> Self {
        Self(Ok(Err(missing)))
    }
}

/// Both keys, or the reason why one is missing: a reason to refuse the request takes precedence over a reason that the limit may ignore.
fn together(first: Result<Key, MissingKey>, second: Result<Key, MissingKey>) -> Result<Key, MissingKey> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(first.and(second)),
        (Err(first), Err(second)) if !first.is_grave() && second.is_grave() => Err(second),
        (Err(missing), _) | (_, Err(missing)) => Err(missing),
    }
}
