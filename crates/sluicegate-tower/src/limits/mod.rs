//! Which limits a request is subject to, and what each of them asks for it.

pub(crate) mod conditions;
pub(crate) mod limit;
pub(crate) mod predicate;
pub(crate) mod tiers;

pub use self::limit::Limit;
pub use self::predicate::{method_in, path_in, preflight};
pub use self::tiers::{Tiers, TiersBuilder};
pub use crate::rate_limit::ShadowCount;
