//! The trait that all extractors implement, and the ways to combine them.

use std::sync::Arc;

use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;

use crate::key::extraction::{Extraction, RequestView};
use crate::key::form::KeyForm;
use crate::key::ip::PeerIp;

/// Finds the key of the bucket that a request spends from.
///
/// It is object-safe, and synchronous if possible: an extractor that has to wait copies what it needs from the request
/// and returns [`Extraction::pending`]. Never trust text from a client here: a key taken from a header
/// lets each client choose its bucket, so verify the key, or combine it with something that clients cannot choose.
///
/// ```
/// use sluicegate_tower::KeyExtractor;
/// use sluicegate_tower::key::{Extraction, RequestView};
///
/// /// The tenant that an authentication layer left in the extensions.
/// struct Tenant(u64);
///
/// struct ByTenant;
///
/// impl KeyExtractor for ByTenant {
///     fn extract(&self, request: RequestView<'_>) -> Extraction {
///         match request.extensions.get::<Tenant>() {
///             Some(tenant) => Extraction::found(tenant.0),
///             None => Extraction::missing("the request has no tenant"),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose bucket a request spends from",
    label = "not a `KeyExtractor`",
    note = "a header is `HeaderKey::new(\"x-api-key\")?`, with the `?`; the client behind proxies `ClientIp::behind([..])?`",
    note = "a closure is `key_fn(|request| ..)`, and returns an `Option` of a key",
    note = "one bucket for all requests together is `Key::from(\"all\")`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of a request, or the reason why it has none.
    fn extract(&self, request: RequestView<'_>) -> Extraction;

    /// The kind of its keys, which decides how much of them is shown. Default: [`KeyKind::Secret`]. A layer puts it on each key that it
    /// finds.
    ///
    /// ```
    /// use sluicegate_tower::key::{ApiKey, KeyKind, RequestMethod};
    /// use sluicegate_tower::{KeyExtractor, PeerIp};
    ///
    /// assert_eq!((RequestMethod, PeerIp::new()).kind(), KeyKind::Address);
    /// assert_eq!(ApiKey::header("x-api-key")?.or(PeerIp::new()).kind(), KeyKind::Secret);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    fn kind(&self) -> KeyKind {
        KeyKind::Secret
    }

    /// Whether clients can make up any number of keys, as with an unverified header. A layer whose limits
    /// all have such keys limits no client, and logs a warning when it is built. Default: no.
    fn is_invented(&self) -> bool {
        false
    }

    /// The forms in which an operator writes its keys, so that a status page can look one up without a request. Default: as text.
    fn forms(&self) -> Vec<KeyForm> {
        vec![KeyForm::text()]
    }

    /// This extractor, if its keys are the addresses of peers.
    #[doc(hidden)]
    fn peers(&self) -> Option<PeerIp> {
        None
    }

    /// This extractor, only with keys that `is_good` accepts. Other requests have no key, so that [`or`](Self::or) tries the
    /// next extractor.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::key::ApiKey;
    /// use sluicegate_tower::{KeyExtractor, Limit, PeerIp};
    ///
    /// // Unknown keys share the bucket of their address.
    /// let api_key = ApiKey::header("x-api-key")?;
    /// let given_out = api_key.one_of(["k-partner-1", "k-partner-2"]);
    /// let limit = Limit::new(Policy::gcra("api", "100/min").on(&MemoryStore::new())?)
    ///     .key(api_key.verified_by(given_out).or(PeerIp::new()));
    /// # let _ = limit;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    fn verified_by<F>(self, is_good: F) -> impl KeyExtractor + Clone
    where
        Self: Sized,
        F: Fn(RequestView<'_>) -> bool + Send + Sync + 'static,
    {
        Closure::new(self.kind(), false, self.forms(), move |request| match is_good(request) {
            true => self.extract(request),
            false => Extraction::missing("the request's key is not a good one"),
        })
    }

    /// This extractor, with keys that were already verified by an authentication layer or by a proxy that overwrites the header. It
    /// only turns off the warning when a layer is [built](Self::is_invented).
    fn verified_before(self) -> impl KeyExtractor + Clone
    where
        Self: Sized,
    {
        Closure::new(self.kind(), false, self.forms(), move |request| self.extract(request))
    }

    /// This extractor, with keys of this kind.
    ///
    /// ```
    /// use sluicegate_tower::KeyExtractor;
    /// use sluicegate_tower::key::{KeyKind, key_from_extension};
    ///
    /// #[derive(Clone)]
    /// struct User { id: u64 }
    ///
    /// let by_user = key_from_extension(|user: &User| user.id).of_kind(KeyKind::Name);
    /// assert_eq!(by_user.kind(), KeyKind::Name);
    /// ```
    fn of_kind(self, kind: KeyKind) -> impl KeyExtractor + Clone
    where
        Self: Sized,
    {
        Closure::new(kind, self.is_invented(), self.forms(), move |request| self.extract(request))
    }

    /// This extractor, or `other` for requests without a key of this one. The [kind](Self::kind) is the more secret of the
    /// two.
    fn or<E: KeyExtractor>(self, other: E) -> impl KeyExtractor + Clone
    where
        Self: Sized,
    {
        let kind = self.kind().max(other.kind());
        let is_invented = self.is_invented() || other.is_invented();
        let forms = [self.forms(), other.forms()].concat();
        Closure::new(kind, is_invented, forms, move |request| either(&self, &other, request))
    }
}

macro_rules! pointer {
    ($pointer:ident) => {
        impl<E: KeyExtractor + ?Sized> KeyExtractor for $pointer<E> {
            fn extract(&self, request: RequestView<'_>) -> Extraction {
                (**self).extract(request)
            }

            fn kind(&self) -> KeyKind {
                (**self).kind()
            }

            fn is_invented(&self) -> bool {
                (**self).is_invented()
            }

            fn peers(&self) -> Option<PeerIp> {
                (**self).peers()
            }

            fn forms(&self) -> Vec<KeyForm> {
                (**self).forms()
            }
        }
    };
}

pointer!(Arc);
pointer!(Box);

/// All requests share the bucket of this key.
impl KeyExtractor for Key {
    fn extract(&self, _request: RequestView<'_>) -> Extraction {
        Extraction::found(self)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Name
    }

    fn forms(&self) -> Vec<KeyForm> {
        let key = self.clone();
        vec![KeyForm::new("all", "anything, for all share one bucket", move |_, _| Some(key.clone()))]
    }
}

/// Both keys combined: a bucket per combination.
impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        self.0.extract(request).and(self.1.extract(request))
    }

    fn kind(&self) -> KeyKind {
        self.0.kind().max(self.1.kind())
    }

    fn is_invented(&self) -> bool {
        self.0.is_invented() || self.1.is_invented()
    }

    fn forms(&self) -> Vec<KeyForm> {
        vec![KeyForm::several()]
    }
}

/// All three keys combined: a bucket per combination.
impl<A: KeyExtractor, B: KeyExtractor, C: KeyExtractor> KeyExtractor for (A, B, C) {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        self.0.extract(request).and(self.1.extract(request)).and(self.2.extract(request))
    }

    fn kind(&self) -> KeyKind {
        self.0.kind().max(self.1.kind()).max(self.2.kind())
    }

    fn is_invented(&self) -> bool {
        self.0.is_invented() || self.1.is_invented() || self.2.is_invented()
    }

    fn forms(&self) -> Vec<KeyForm> {
        vec![KeyForm::several()]
    }
}

/// An extractor that is a closure, with the kind of its keys. Clones share the closure, which
/// does not have to be `Clone`.
pub(super) struct Closure<F> {
    kind: KeyKind,
    is_invented: bool,
    forms: Vec<KeyForm>,
    extract: Arc<F>,
}

impl<F: Fn(RequestView<'_>) -> Extraction + Send + Sync + 'static> Closure<F> {
    pub(super) fn new(kind: KeyKind, is_invented: bool, forms: Vec<KeyForm>, extract: F) -> Self {
        Self { kind, is_invented, forms, extract: Arc::new(extract) }
    }
}

impl<F: Fn(RequestView<'_>) -> Extraction + Send + Sync + 'static> KeyExtractor for Closure<F> {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        (self.extract)(request)
    }

    fn kind(&self) -> KeyKind {
        self.kind
    }

    fn is_invented(&self) -> bool {
        self.is_invented
    }

    fn forms(&self) -> Vec<KeyForm> {
        self.forms.clone()
    }
}

impl<F> Clone for Closure<F> {
    fn clone(&self) -> Self {
        let Self { kind, is_invented, forms, extract } = self;
        Self { kind: *kind, is_invented: *is_invented, forms: forms.clone(), extract: Arc::clone(extract) }
    }
}

/// The key that the first finds, or the second's.
fn either(first: &impl KeyExtractor, second: &impl KeyExtractor, request: RequestView<'_>) -> Extraction {
    match first.extract(request).now() {
        Ok(Ok(key)) => Extraction::found(key),
        Ok(Err(missing)) if missing.reject().is_some() => missing.into(),
        Ok(Err(_)) => second.extract(request),
        Err(pending) => {
            // The request cannot be kept until the first key is known, so the second extractor runs now.
            let second = second.extract(request);
            Extraction::pending(async move {
                match pending.await {
                    Err(missing) if missing.reject().is_none() => second.await,
                    result => result,
                }
            })
        }
    }
}
