//! The answer of an extractor: a key, none, or one that has to be waited for.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use sluicegate_core::Key;

use crate::key::missing::MissingKey;

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
pub struct Extraction(Found);

type Pending = Pin<Box<dyn Future<Output = Result<Key, MissingKey>> + Send>>;

enum Found {
    Ready(Result<Key, MissingKey>),
    Pending(Pending),
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

    /// Both keys as one.
    pub(super) fn and(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Found::Ready(first), Found::Ready(second)) => Self(Found::Ready(together(first, second))),
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

/// Both keys, or why one is missing: a reason to refuse the request counts before one that its limit may overlook.
fn together(first: Result<Key, MissingKey>, second: Result<Key, MissingKey>) -> Result<Key, MissingKey> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(first.and(second)),
        (Err(first), Err(second)) if !first.is_grave() && second.is_grave() => Err(second),
        (Err(missing), _) | (_, Err(missing)) => Err(missing),
    }
}
