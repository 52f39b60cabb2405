//! Handles to a store: [`store_handle`](crate::store_handle), and the types that a policy can be put on: [`IntoStore`].

use std::sync::Arc;

use super::Store;

/// A store to put policies on: [`MemoryStore`](crate::MemoryStore) or another handle, by value or by reference, or an
/// `Arc<dyn Store>`, if the store is chosen at run time.
///
/// Every `Into<Arc<dyn Store>>` implements it; it exists so that the compiler can explain a missing implementation.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::{ConfigError, MemoryStore, Policy, RateLimiter, Store};
///
/// fn limiters(shared: Option<Arc<dyn Store>>) -> Result<[RateLimiter; 2], ConfigError> {
///     let store = shared.unwrap_or_else(|| MemoryStore::new().into());
///     let login = Policy::gcra("login", "5/min").on(Arc::clone(&store))?;
///     let search = Policy::gcra("search", "10/s").on(store)?;
///     Ok([login, search])
/// }
/// # limiters(None).map(drop)?;
/// # Ok::<(), ConfigError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no store",
    label = "a store is expected here",
    note = "a store is a handle already, which clones share: write `MemoryStore::new()` or `&store`, without an `Arc` around it",
    note = "an `Arc<dyn Store>` goes by value: `Arc::clone(store)` of a `store: &Arc<dyn Store>`; there is none behind a `&dyn Store`",
    note = "a generic function takes `impl IntoStore` instead of `impl Store`"
)]
pub trait IntoStore: Into<Arc<dyn Store>> {}

#[diagnostic::do_not_recommend]
impl<S: Into<Arc<dyn Store>>> IntoStore for S {}

/// Makes a type a handle to a store: policies are put on it by value or by reference. For authors of stores.
///
/// The type is a tuple struct with an `Arc` of the [`Store`](crate::Store) as its first field. With a getter after its name,
/// `Debug` shows the value of the getter.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::limiter::Inherit;
/// use sluicegate_core::store::{Ask, DecisionFuture};
/// use sluicegate_core::wrap::{Within, Wrap};
/// use sluicegate_core::{ConfigError, MemoryStore, Policy, store_handle};
///
/// /// A store that only forwards.
/// #[derive(Clone)]
/// pub struct Through(Arc<Front>);
///
/// store_handle!(Through, title);
///
/// impl Through {
///     fn title(&self) -> &'static str {
///         "nothing of its own"
///     }
/// }
///
/// struct Front(Within);
///
/// impl Wrap for Front {
///     type Own = ();
///
///     fn within(&self) -> &Within {
///         &self.0
///     }
///
///     fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
///         Ok(())
///     }
///
///     fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
///         self.0.decide(asks)
///     }
/// }
///
/// let store = Through(Arc::new(Front(Within::new(MemoryStore::new()))));
/// let login = Policy::gcra("login", "5/min").on(&store)?;
/// assert!(login.check("ada").now().expect("memory answers at once")?.is_allowed());
/// assert_eq!(format!("{store:?}"), r#"Through("nothing of its own")"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! store_handle {
    ($handle:ident) => {
        impl ::std::convert::From<&$handle> for ::std::sync::Arc<dyn $crate::Store> {
            fn from(store: &$handle) -> Self {
                ::std::sync::Arc::clone(&store.0) as Self
            }
        }

        impl ::std::convert::From<$handle> for ::std::sync::Arc<dyn $crate::Store> {
            fn from(store: $handle) -> Self {
                store.0
            }
        }
    };
    ($handle:ident, $shown:ident) => {
        $crate::store_handle!($handle);

        impl ::std::fmt::Debug for $handle {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(::std::stringify!($handle)).field(&self.$shown()).finish()
            }
        }
    };
}
