//! What all services of ours have in common: the service inside of them.

/// A clone of the inner service for a call that comes later, and that has to poll it ready first.
///
/// The value that was polled ready goes, for readiness can be a permit, a place or a connection: a request that waits
/// must not keep it from those that do not have to. A `ConcurrencyLimit` inside was once used up by requests that waited.
pub(crate) fn for_later<S: Clone>(inner: &mut S) -> S {
    *inner = inner.clone();
    inner.clone()
}

/// The ways to the inner service, which is in the field `inner`; the text says what it is.
macro_rules! inner_accessors {
    ($what:literal) => {
        #[doc = $what]
        pub fn get_ref(&self) -> &S {
            &self.inner
        }

        #[doc = $what]
        pub fn get_mut(&mut self) -> &mut S {
            &mut self.inner
        }

        #[doc = $what]
        pub fn into_inner(self) -> S {
            self.inner
        }
    };
}

pub(crate) use inner_accessors;
