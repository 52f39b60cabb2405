//! What all middleware of this crate has in common: the inner service, the bounded queue, lookups that end in time.

pub(crate) mod inner;
pub(crate) mod lookup;
pub(crate) mod queue;
