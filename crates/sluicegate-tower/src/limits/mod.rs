//! Which limits a request is subject to, and what each of them asks for it.

pub(crate) mod conditions;
pub(crate) mod limit;
mod path_in;
pub(crate) mod predicate;
pub(crate) mod tiers;

pub use self::limit::Limit;
pub use self::path_in::path_in;
pub use self::predicate::{method_in, preflight};
pub use self::tiers::{Tiers, TiersBuilder};
pub use crate::rate_limit::ShadowCount;
