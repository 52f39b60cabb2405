//! What all services of ours have in common: the service inside of them.

use std::mem;

/// Takes the inner service along for a call that comes later. Only the value that was polled is known to be ready, so it
/// goes, and its clone stays here.
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let next = inner.clone();
    mem::replace(inner, next)
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
