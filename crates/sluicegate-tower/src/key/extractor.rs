//! The trait that all extractors implement, and the ways to combine them.

use std::sync::Arc;

use crate::key::extraction::Extraction;
use crate::key::view::RequestView;

/// Finds out whose bucket a request spends from.
///
/// Object-safe, and synchronous where it can be: an extractor that has to wait copies what it needs from the request
/// and returns [`Extraction::pending`]. What a client wrote must not be trusted here: a key taken from a header
/// lets each client choose its bucket, so combine it with something that it cannot choose, or verify it.
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
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of a request, or why it has none.
    fn extract(&self, request: RequestView<'_>) -> Extraction;

    /// This extractor, or another one for requests in which it finds nothing.
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or { first: self, second: other }
    }
}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Arc<E> {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        (**self).extract(request)
    }
}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Box<E> {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        (**self).extract(request)
    }
}

/// The first of two extractors that finds a key; see [`KeyExtractor::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        match self.first.extract(request).now() {
            Ok(Ok(key)) => Extraction::found(key),
            Ok(Err(missing)) if missing.reject().is_some() => missing.into(),
            Ok(Err(_)) => self.second.extract(request),
            Err(pending) => {
                // The request cannot be kept until the first is known, so the second looks at it now.
                let second = self.second.extract(request);
                Extraction::pending(async move {
                    match pending.await {
                        Err(missing) if missing.reject().is_none() => second.await,
                        result => result,
                    }
                })
            }
        }
    }
}

/// Both keys as one: a bucket per combination.
impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        self.0.extract(request).and(self.1.extract(request))
    }
}

/// All three keys as one: a bucket per combination.
impl<A: KeyExtractor, B: KeyExtractor, C: KeyExtractor> KeyExtractor for (A, B, C) {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        self.0.extract(request).and(self.1.extract(request)).and(self.2.extract(request))
    }
}
