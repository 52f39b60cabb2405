//! Extractors that are a closure: [`extract_fn`], [`key_fn`] and [`key_from_extension`].

use std::any::type_name;

use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;

use crate::key::extraction::{Extraction, RequestView};
use crate::key::extractor::{Closure, KeyExtractor};
use crate::key::form::KeyForm;
use crate::key::missing::MissingKey;

/// An extractor from a closure that gives the reason for a missing key itself, or that has to look the key up.
///
/// Its keys are [secrets](KeyKind::Secret), unless [`of_kind`](KeyExtractor::of_kind) says otherwise, as with all
/// extractors from closures.
///
/// ```
/// use sluicegate_core::Key;
/// use sluicegate_tower::KeyExtractor;
/// use sluicegate_tower::key::{Extraction, MissingKey, extract_fn};
///
/// async fn tenant_of(host: String) -> Option<u64> {
///     // Asks a service.
///     # (host == "shop.example").then_some(7)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let by_tenant = extract_fn(|request| {
///     let Some(host) = request.uri.host().map(str::to_owned) else {
///         return Extraction::missing("the request names no host");
///     };
///     // The future holds copies: the request continues without it.
///     Extraction::pending(async move {
///         tenant_of(host).await.map(Key::from).ok_or_else(|| MissingKey::new("the host is nobody's"))
///     })
/// });
/// let request = http::Request::get("http://shop.example/").body(())?;
/// assert_eq!(by_tenant.extract((&request).into()).await, Ok(Key::from(7)));
/// # Ok(())
/// # }
/// ```
pub fn extract_fn<F>(extract: F) -> impl KeyExtractor + Clone
where
    F: Fn(RequestView<'_>) -> Extraction + Send + Sync + 'static,
{
    Closure::new(KeyKind::Secret, false, vec![KeyForm::text()], extract)
}

/// An extractor from a closure; `None` means that the request has no key.
///
/// ```
/// use sluicegate_tower::key::key_fn;
/// use sluicegate_tower::{KeyExtractor, PeerIp};
///
/// let by_first_segment = key_fn(|request| request.uri.path().split('/').nth(1).map(str::to_owned));
/// let by_segment_and_peer = (by_first_segment, PeerIp::new());
/// # fn check(_: impl KeyExtractor) {}
/// # check(by_segment_and_peer);
/// ```
pub fn key_fn<F, K>(find: F) -> impl KeyExtractor + Clone
where
    F: Fn(RequestView<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key>,
{
    extract_fn(move |request| match find(request) {
        Some(key) => Extraction::found(key),
        None => Extraction::missing("the request has no key"),
    })
}

/// One bucket per value in a request extension, such as the user from an authentication layer.
///
/// That layer has to be around the limit: in axum, add it after the limit. A request without the value is refused with 500, and
/// the log says why, unless the limit has an [`on_missing_key`](crate::Limit::on_missing_key) or the extractor an
/// [`or`](KeyExtractor::or).
///
/// ```
/// use sluicegate_tower::key::key_from_extension;
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let by_user = key_from_extension(|user: &User| user.id);
/// ```
pub fn key_from_extension<T, F, K>(find: F) -> impl KeyExtractor + Clone
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    extract_fn(move |request| {
        match request.extensions.get::<T>() {
        Some(extension) => Extraction::found(find(extension)),
        None => MissingKey::mistake(format!(
            "the request has no {} in its extensions: put the layer that adds it around the limit (in axum, `.layer(..)` after \
             it), or choose an OnMissingKey for requests without it",
            type_name::<T>()
        ))
        .into(),
    }
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key(extractor: &impl KeyExtractor, request: &Request<()>) -> Result<Key, String> {
        extractor.extract(request.into()).now().unwrap().map_err(|missing| missing.to_string())
    }

    #[test]
    fn extractors_combine() {
        let mut known = Request::new(());
        known.extensions_mut().insert(7_u64);
        let user = || key_from_extension(|id: &u64| *id);
        let nobody = || key_fn(|_| None::<u64>);
        assert_eq!(key(&nobody().or(user()), &known), Ok(7.into()));
        assert_eq!(key(&(user(), Key::from("all")), &known), Ok((7, "all").into()));
        assert!(key(&(user(), nobody(), Key::from("all")), &known).is_err());
        assert!(key(&user(), &Request::new(())).unwrap_err().contains("no u64 in its extensions"));
    }

    #[tokio::test]
    async fn an_extractor_may_wait() {
        let slow = |id: Option<u64>| {
            extract_fn(move |_| {
                Extraction::pending(async move {
                    tokio::task::yield_now().await;
                    id.map(Key::from).ok_or_else(|| MissingKey::new("unknown"))
                })
            })
        };
        let request = Request::new(());
        assert_eq!(slow(None).or(Key::from("all")).extract((&request).into()).await, Ok("all".into()));
        assert_eq!((Key::from("a"), slow(Some(3))).extract((&request).into()).await, Ok(("a", 3).into()));
    }
}
