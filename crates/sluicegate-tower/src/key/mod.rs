//! Who is asking: [`KeyExtractor`], and the ways to combine extractors.

mod ip;
mod path;
mod route;
mod secret;
mod simple;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::StatusCode;
use http::request::Parts;
use sluicegate_core::Key;

pub use self::ip::{ClientIp, ForwardedFaults, Networks, OnMalformed, PeerAddr, PeerIp};
pub use self::path::RequestPath;
pub(crate) use self::path::hex;
pub use self::route::RequestMethod;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use self::route::Route;
pub(crate) use self::secret::bounded;
pub use self::secret::{ApiKey, Bearer, Cookie};
#[cfg(feature = "jwt")]
#[cfg_attr(docsrs, doc(cfg(feature = "jwt")))]
pub use self::secret::{BearerJwt, Claims};
pub(crate) use self::simple::header_name;
pub use self::simple::{Constant, FromExtension, HeaderKey, KeyFn, key_fn};
pub use crate::limits::missing::OnMissingKey;

/// Finds out whose bucket a request spends from.
///
/// Object-safe, and synchronous where it can be: an extractor that has to wait copies what it needs from the request
/// and returns [`Extraction::pending`]. What a client wrote must not be trusted here: a key taken from a header
/// lets each client choose its bucket, so combine it with something that it cannot choose, or verify it.
///
/// ```
/// use http::request::Parts;
/// use sluicegate_tower::KeyExtractor;
/// use sluicegate_tower::key::Extraction;
///
/// /// The tenant that an authentication layer left in the extensions.
/// struct Tenant(u64);
///
/// struct ByTenant;
///
/// impl KeyExtractor for ByTenant {
///     fn extract(&self, parts: &Parts) -> Extraction {
///         match parts.extensions.get::<Tenant>() {
///             Some(tenant) => Extraction::found(tenant.0),
///             None => Extraction::missing("the request has no tenant"),
///         }
///     }
/// }
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of a request, or why it has none.
    fn extract(&self, parts: &Parts) -> Extraction;

    /// This extractor, or another one for requests in which it finds nothing.
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or { first: self, second: other }
    }
}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Arc<E> {
    fn extract(&self, parts: &Parts) -> Extraction {
        (**self).extract(parts)
    }
}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Box<E> {
    fn extract(&self, parts: &Parts) -> Extraction {
        (**self).extract(parts)
    }
}

/// What an extractor found.
#[must_use = "an extraction says whose bucket it is"]
pub struct Extraction(Found);

type Pending = Pin<Box<dyn Future<Output = Result<Key, MissingKey>> + Send>>;

enum Found {
    Ready(Result<Key, MissingKey>),
    Pending(Pending),
}

/// Why a request has no key: what was looked for, for logs and for the body of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKey {
    reason: Cow<'static, str>,
    reject: Option<StatusCode>,
    /// Whether no request could have this key, because the server is wired up wrongly.
    is_mistake: bool,
}

impl Extraction {
    /// A key.
    #[inline]
    pub fn found(key: impl Into<Key>) -> Self {
        Self(Found::Ready(Ok(key.into())))
    }

    /// No key; see [`MissingKey::new`].
    pub fn missing(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(Found::Ready(Err(MissingKey::new(reason))))
    }

    /// A key that has to be waited for. A layer waits for as long as its `longest_lookup` says, and then refuses the
    /// request with 503.
    pub fn pending(future: impl Future<Output = Result<Key, MissingKey>> + Send + 'static) -> Self {
        Self(Found::Pending(Box::pin(future)))
    }

    /// The result if it is known, or the extraction that has to be polled.
    ///
    /// # Errors
    /// The extraction itself, when it has to be waited for.
    #[inline]
    pub fn now(self) -> Result<Result<Key, MissingKey>, Self> {
        match self.0 {
            Found::Ready(result) => Ok(result),
            pending @ Found::Pending(_) => Err(Self(pending)),
        }
    }
}

impl Future for Extraction {
    type Output = Result<Key, MissingKey>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Found::Ready(result) => Poll::Ready(result.clone()),
            Found::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Extraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Found::Ready(result) => f.debug_tuple("Extraction").field(result).finish(),
            Found::Pending(_) => f.write_str("Extraction(..)"),
        }
    }
}

impl MissingKey {
    /// `reason` says what was looked for. It may reach the client, so it must not repeat what the client sent.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into(), reject: None, is_mistake: false }
    }

    /// A key that no request could have, because the server is wired up wrongly. `reason` says what to write.
    pub(crate) fn mistake(reason: &'static str) -> Self {
        Self { is_mistake: true, ..Self::new(reason) }
    }

    /// A request that is to be refused with this status, whatever its limit does with those whose key is merely
    /// missing. An extractor after it, behind an `or`, is not asked.
    #[must_use]
    pub fn rejecting(mut self, status: StatusCode) -> Self {
        self.reject = Some(status);
        self
    }

    /// The status with which the request is to be refused in any case.
    pub fn reject(&self) -> Option<StatusCode> {
        self.reject
    }

    /// What was looked for.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether it is more than a key that happens not to be there.
    fn is_grave(&self) -> bool {
        self.reject.is_some() || self.is_mistake
    }

    /// Whether the server is to blame, not the request.
    pub(crate) fn is_mistake(&self) -> bool {
        self.is_mistake
    }

    /// The reason as clients are told it: how this server is built is for its developers only.
    pub(crate) fn told(&self, is_debug_build: bool) -> &str {
        if self.is_mistake && !is_debug_build {
            "this server does not know who is asking"
        } else {
            &self.reason
        }
    }
}

impl From<Result<Key, MissingKey>> for Extraction {
    fn from(found: Result<Key, MissingKey>) -> Self {
        Self(Found::Ready(found))
    }
}

impl From<MissingKey> for Extraction {
    fn from(missing: MissingKey) -> Self {
        Self(Found::Ready(Err(missing)))
    }
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for MissingKey {}

/// The first of two extractors that finds a key; see [`KeyExtractor::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match self.first.extract(parts).now() {
            Ok(Ok(key)) => Extraction::found(key),
            Ok(Err(missing)) if missing.reject.is_some() => missing.into(),
            Ok(Err(_)) => self.second.extract(parts),
            Err(pending) => {
                // The request cannot be kept until the first is known, so the second looks at it now.
                let second = self.second.extract(parts);
                Extraction::pending(async move {
                    match pending.await {
                        Err(missing) if missing.reject.is_none() => second.await,
                        result => result,
                    }
                })
            }
        }
    }
}

/// Both keys as one: a bucket per combination.
impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    fn extract(&self, parts: &Parts) -> Extraction {
        both(self.0.extract(parts), self.1.extract(parts))
    }
}

/// All three keys as one: a bucket per combination.
impl<A: KeyExtractor, B: KeyExtractor, C: KeyExtractor> KeyExtractor for (A, B, C) {
    fn extract(&self, parts: &Parts) -> Extraction {
        both(both(self.0.extract(parts), self.1.extract(parts)), self.2.extract(parts))
    }
}

fn both(first: Extraction, second: Extraction) -> Extraction {
    match (first.0, second.0) {
        (Found::Ready(first), Found::Ready(second)) => Extraction(Found::Ready(together(first, second))),
        (first, second) => Extraction::pending(async move {
            match Extraction(first).await {
                Err(missing) if missing.reject.is_some() => Err(missing),
                first => together(first, Extraction(second).await),
            }
        }),
    }
}

/// Both keys, or why one is missing: a reason to refuse the request counts before one that its limit may overlook.
fn together(first: Result<Key, MissingKey>, second: Result<Key, MissingKey>) -> Result<Key, MissingKey> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(first.and(second)),
        (Err(first), Err(second)) if !first.is_grave() && second.is_grave() => Err(second),
        (Err(missing), _) | (_, Err(missing)) => Err(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_release_build_are_not_told_how_the_server_is_built() {
        let mistake = MissingKey::mistake("serve with connect info");
        assert_eq!(mistake.told(true), "serve with connect info");
        assert_eq!(mistake.told(false), "this server does not know who is asking");
        assert_eq!(MissingKey::new("the header x-key is missing").told(false), "the header x-key is missing");
    }
}
