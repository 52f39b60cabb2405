//! Which limits a request is subject to, and deciding by them: [`Limit`], [`Tiers`], [`Group`], [`Limits`].
//!
//! ```
//! use http::Request;
//! use sluicegate_core::{MemoryStore, Policy};
//! use sluicegate_tower::Limit;
//! use sluicegate_tower::key::HeaderKey;
//! use sluicegate_tower::limits::{Limits, path_in};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let by_key = || HeaderKey::new("x-api-key");
//! let login = Limit::new(Policy::gcra("login", "5/min").on(&store)?).key(by_key()?).only_if(path_in(["/login"])?);
//! let api = Limit::new(Policy::gcra("api", "100/min").on(&store)?).key(by_key()?);
//! let limits = Limits::builder(api).and(login).build()?;
//!
//! let request = Request::get("/search").header("x-api-key", "k1").body(())?;
//! println!("{}", limits.explain(&request).await);
//! # Ok(())
//! # }
//! ```

pub(crate) mod chosen;
pub(crate) mod door;
pub(crate) mod group;
mod into_group;
pub(crate) mod limit;
mod path_in;
pub(crate) mod pick;
pub(crate) mod predicate;
pub(crate) mod source;
pub(crate) mod tiers;
pub(crate) mod walk;

pub use self::chosen::Chosen;
pub use self::group::{Choose, Group};
pub use self::into_group::IntoGroup;
pub use self::limit::Limit;
pub use self::path_in::path_in;
pub use self::predicate::{method_in, preflight};
pub use self::tiers::{Tiers, TiersBuilder};
pub use crate::admission::admitted::Admitted;
pub use crate::admission::builder::LimitsBuilder;
pub use crate::admission::decide::Admission;
pub use crate::admission::explain::{AskExplained, Explanation, LimitExplained, WouldBe};
pub use crate::admission::handle::LimitsHandle;
pub use crate::admission::refused::Refused;
pub use crate::admission::set::Limits;
pub use crate::admission::shadow::ShadowCount;
