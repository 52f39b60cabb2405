//! Handles to a store: [`store_handle`](crate::store_handle).

/// Makes a type a handle to a store: policies are put on it by value or by reference. For authors of stores.
///
/// The type is a tuple struct whose first field is an `Arc` of the [`Store`](crate::Store). With a getter behind its name, its
/// `Debug` shows what the getter returns.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::limiter::Inherit;
/// use sluicegate_core::store::{Ask, DecisionFuture};
/// use sluicegate_core::wrap::{Within, Wrap};
/// use sluicegate_core::{ConfigError, MemoryStore, Policy, store_handle};
///
/// /// A store that does nothing of its own.
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
