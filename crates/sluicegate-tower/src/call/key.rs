//! The key and the cost of a call: [`CallKey`].

use std::sync::Arc;

use sluicegate_core::Key;

/// Gives the key of a call and its cost.
///
/// Implemented by closures that return a key: `|job: &Job| job.tenant`.
///
/// ```
/// use sluicegate_core::Key;
/// use sluicegate_tower::call::CallKey;
///
/// struct Query { tenant: u64, rows: u64 }
///
/// struct PerRow;
///
/// impl CallKey<Query> for PerRow {
///     fn key(&self, query: &Query) -> Key {
///         query.tenant.into()
///     }
///
///     fn cost(&self, query: &Query) -> u64 {
///         query.rows
///     }
/// }
/// ```
pub trait CallKey<Req>: Send + Sync + 'static {
    /// The key of the bucket that the call spends from.
    fn key(&self, request: &Req) -> Key;

    /// The units that the call spends. Default: 1. A call of 0 units passes and spends nothing.
    fn cost(&self, request: &Req) -> u64 {
        _ = request;
        1
    }
}

impl<F, Req, K> CallKey<Req> for F
where
    F: Fn(&Req) -> K + Send + Sync + 'static,
    K: Into<Key>,
{
    fn key(&self, request: &Req) -> Key {
        self(request).into()
    }
}

/// The keys of another [`CallKey`], with costs from a closure.
pub(super) struct WithCost<K, C> {
    pub(crate) key: Arc<K>,
    pub(crate) cost: C,
}

impl<K, C, Req> CallKey<Req> for WithCost<K, C>
where
    K: CallKey<Req>,
    C: Fn(&Req) -> u64 + Send + Sync + 'static,
{
    fn key(&self, request: &Req) -> Key {
        self.key.key(request)
    }

    fn cost(&self, request: &Req) -> u64 {
        (self.cost)(request)
    }
}
