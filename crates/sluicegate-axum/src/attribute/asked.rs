//! Handlers that return their limits on demand: [`Attributed`].

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::limited::{AskedAttribute, Handed, Limited, Skip};
use super::source::Attribute;

/// A handler that has a `#[rate_limited]` attribute, for [`RateLimitStore::open`](super::RateLimitStore::open).
///
/// The attribute implements it; the compiler infers `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler with a `#[rate_limited]` attribute",
    label = "not `#[rate_limited]`"
)]
pub trait Attributed<T>: sealed::Sealed<T> {}

impl<H: sealed::Sealed<T>, T> Attributed<T> for H {}

/// Asks a handler for its attribute: the handler is called, returns the attribute, and runs none of its own code.
pub(super) fn ask<H: Attributed<T>, T>(handler: H) -> Option<&'static Attribute> {
    let asked = AskedAttribute::default();
    handler.ask(Arc::clone(&asked));
    asked.get().copied()
}

mod sealed {
    use super::{AskedAttribute, Context, Future, Handed, Limited, Skip, Waker, pin};

    #[expect(unnameable_types, reason = "whoever cannot name it cannot implement it")]
    pub trait Sealed<T> {
        fn ask(self, asked: AskedAttribute);
    }

    macro_rules! attributed {
        ($($skip:ident)*) => {
            impl<F, R, A, X> Sealed<($($skip,)* Limited<A, X>,)> for F
            where
                F: FnOnce($($skip,)* Limited<A, X>) -> R,
                R: Future,
            {
                fn ask(self, asked: AskedAttribute) {
                    let answer = self($($skip,)* Limited(Handed::Question(asked)));
                    // Without a request it need not wait, and without an answer there is no attribute.
                    _ = pin!(answer).poll(&mut Context::from_waker(Waker::noop()));
                }
            }
        };
    }

    attributed!();
    attributed!(Skip);
    attributed!(Skip Skip);
    attributed!(Skip Skip Skip);
    attributed!(Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
    attributed!(Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip Skip);
}
