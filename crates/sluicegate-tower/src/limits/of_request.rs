//! A value that depends on the request, and may have to be looked up: [`OfRequest`].

use std::future::Future;
use std::pin::Pin;

use crate::key::RequestView;

/// A function of the request.
///
/// A value that is known at once is a plain call; a value that has to be looked up is a future,
/// and the request takes a place in the queue while it waits.
pub(super) enum OfRequest<T> {
    AtOnce(Box<dyn Fn(RequestView<'_>) -> T + Send + Sync>),
    Perhaps(Box<PerhapsFn<T>>),
}

/// The value, or a future of it.
type PerhapsFn<T> = dyn Fn(RequestView<'_>) -> Result<T, PendingValue<T>> + Send + Sync;

/// A pending value.
pub(crate) type PendingValue<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T> OfRequest<T> {
    pub(super) fn at_once(value: impl Fn(RequestView<'_>) -> T + Send + Sync + 'static) -> Self {
        Self::AtOnce(Box::new(value))
    }

    pub(super) fn later<F, V>(value: F) -> Self
    where
        F: Fn(RequestView<'_>) -> V + Send + Sync + 'static,
        V: Future<Output = T> + Send + 'static,
    {
        Self::perhaps(move |request| Err(Box::pin(value(request))))
    }

    /// A value that is known for some requests.
    pub(super) fn perhaps(
        value: impl Fn(RequestView<'_>) -> Result<T, PendingValue<T>> + Send + Sync + 'static,
    ) -> Self {
        Self::Perhaps(Box::new(value))
    }

    /// The value for this request, or the future that finds it.
    #[inline]
    pub(super) fn value(&self, request: RequestView<'_>) -> Result<T, PendingValue<T>> {
        match self {
            Self::AtOnce(value) => Ok(value(request)),
            Self::Perhaps(value) => value(request),
        }
    }
}
