//! The simple extractors: header, constant, closure, request extension.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use http::header::{HeaderMap, HeaderName};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::{ConfigError, Key};

use crate::key::bounded;
use crate::key::{Extraction, KeyExtractor, RequestView};

/// One bucket per value of a header. Clients choose what they send: see [`KeyExtractor`].
///
/// An empty or blank value counts as missing; of several lines the first counts. Values are compared byte by byte; all
/// that are longer than 8 KiB share one bucket. For secrets there is [`ApiKey`](crate::key::ApiKey).
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
    /// The header called `name`, in any case.
    ///
    /// # Errors
    /// When `name` cannot be the name of a header.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        header_name(name).map(Self)
    }

    fn value<'a>(&self, headers: &'a HeaderMap) -> Option<&'a [u8]> {
        headers.get(&self.0).map(|value| value.as_bytes().trim_ascii()).filter(|value| !value.is_empty())
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match self.value(request.headers) {
            Some(value) => Extraction::found(bounded(value)),
            None => Extraction::missing(format!("the header {} is missing", self.0)),
        }
    }
}

/// The name of a header, checked.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    name.parse().map_err(|_| {
        let shown: String = name.chars().take(64).collect();
        ConfigError::new(
            ConfigErrorKind::Layer,
            format!(
                "{shown:?} cannot be the name of a header: use letters, digits and '-', like \"x-api-key\""
            ),
        )
    })
}

/// One bucket for everybody.
#[derive(Clone, Debug)]
pub struct Constant(Key);

impl Constant {
    /// The bucket of this key.
    pub fn new(key: impl Into<Key>) -> Self {
        Self(key.into())
    }
}

impl KeyExtractor for Constant {
    fn extract(&self, _request: RequestView<'_>) -> Extraction {
        Extraction::found(&self.0)
    }
}

/// One bucket per value that a closure finds; see [`key_fn`].
#[derive(Clone)]
pub struct KeyFn<F>(F);

/// An extractor from a closure; `None` means that the request has no key.
///
/// ```
/// use sluicegate_tower::{PeerIp, KeyExtractor};
/// use sluicegate_tower::key::key_fn;
///
/// let by_first_segment = key_fn(|request| request.uri.path().split('/').nth(1).map(str::to_owned));
/// let by_segment_and_peer = (by_first_segment, PeerIp::new());
/// # fn check(_: impl KeyExtractor) {}
/// # check(by_segment_and_peer);
/// ```
pub fn key_fn<F, K>(find: F) -> KeyFn<F>
where
    F: Fn(RequestView<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key>,
{
    KeyFn(find)
}

impl<F, K> KeyExtractor for KeyFn<F>
where
    F: Fn(RequestView<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key>,
{
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match (self.0)(request) {
            Some(key) => Extraction::found(key),
            None => Extraction::missing("the request has no key"),
        }
    }
}

impl<F> fmt::Debug for KeyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFn({})", type_name::<F>())
    }
}

/// One bucket per value found in a request extension, such as the user that an authentication layer put there.
///
/// ```
/// use sluicegate_tower::key::FromExtension;
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let by_user = FromExtension::new(|user: &User| user.id);
/// ```
#[derive(Clone)]
pub struct FromExtension<T, F> {
    find: F,
    extension: PhantomData<fn(&T)>,
}

impl<T, F, K> FromExtension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    /// The key that `find` makes of the request's `T`.
    pub fn new(find: F) -> Self {
        Self { find, extension: PhantomData }
    }
}

impl<T, F, K> KeyExtractor for FromExtension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match request.extensions.get::<T>() {
            Some(extension) => Extraction::found((self.find)(extension)),
            None => Extraction::missing(format!("the request has no {} in its extensions", type_name::<T>())),
        }
    }
}

impl<T, F> fmt::Debug for FromExtension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromExtension({})", type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::request::Parts;

    use super::*;

    fn parts(build: impl FnOnce(&mut Request<()>)) -> Parts {
        let mut request = Request::new(());
        build(&mut request);
        request.into_parts().0
    }

    fn key(extractor: &impl KeyExtractor, parts: &Parts) -> Result<Key, String> {
        extractor.extract(parts.into()).now().unwrap().map_err(|missing| missing.to_string())
    }

    #[test]
    fn a_blank_header_is_a_missing_one() {
        let header = HeaderKey::new("X-Api-Key").unwrap();
        let with = |value: &'static [u8]| {
            let value = http::HeaderValue::from_bytes(value).unwrap();
            parts(|request| _ = request.headers_mut().insert("x-api-key", value))
        };
        assert_eq!(key(&header, &with(b"  k1 ")), Ok("k1".into()));
        assert_eq!(key(&header, &with(b"k\xff")), Ok(b"k\xff"[..].into()));
        for absent in [with(b""), with(b" \t "), parts(|_| ())] {
            assert_eq!(key(&header, &absent).unwrap_err(), "the header x-api-key is missing");
        }
        assert!(HeaderKey::new("X Forwarded").unwrap_err().to_string().contains("\"X Forwarded\""));
    }

    #[test]
    fn extractors_combine() {
        let known = parts(|request| _ = request.extensions_mut().insert(7_u64));
        let user = || FromExtension::new(|id: &u64| *id);
        let nobody = || key_fn(|_| None::<u64>);
        assert_eq!(key(&nobody().or(user()), &known), Ok(7.into()));
        assert_eq!(key(&(user(), Constant::new("all")), &known), Ok((7, "all").into()));
        assert!(key(&(user(), nobody(), Constant::new("all")), &known).is_err());
        assert!(key(&user(), &parts(|_| ())).unwrap_err().contains("no u64 in its extensions"));
    }

    #[tokio::test]
    async fn an_extractor_may_wait() {
        struct Slow(Option<u64>);
        impl KeyExtractor for Slow {
            fn extract(&self, _request: RequestView<'_>) -> Extraction {
                let id = self.0;
                Extraction::pending(async move {
                    tokio::task::yield_now().await;
                    id.map(Key::from).ok_or_else(|| crate::key::MissingKey::new("unknown"))
                })
            }
        }
        let parts = parts(|_| ());
        assert_eq!(Slow(None).or(Constant::new("all")).extract((&parts).into()).await, Ok("all".into()));
        assert_eq!((Constant::new("a"), Slow(Some(3))).extract((&parts).into()).await, Ok(("a", 3).into()));
    }
}
