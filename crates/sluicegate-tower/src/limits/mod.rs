//! Limits and their decisions without a service: [`Limit`], [`Tiers`], [`Group`], [`Limits`].
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
//!
//! # When not to use it
//! Limits decide and count; they do not call a service or make a response. Around a service, put a
//! [`RateLimitLayer`](crate::RateLimitLayer); for one key without a request, ask the [`RateLimiter`](sluicegate_core::RateLimiter) itself.
//!
//! # Which to use
//! | you want | write |
//! |---|---|
//! | one limit for everything | a [`RateLimiter`](sluicegate_core::RateLimiter) alone, or a [`Limit`] with its key |
//! | a limit for some requests | [`Limit::only_if`] with [`path_in`], [`path_not_in`], [`method_in`] or a closure |
//! | the same in front of a server that ignores case or a trailing slash | [`PathReading`] |
//! | only the first limit that matches | a [`Group`] of [`Choose::First`] |
//! | one function for the conditions of many limits, like a router | [`Group::select`] |
//! | sizes by plan, known when the program starts | [`Tiers`] |
//! | numbers from a database, one for each customer | [`Limit::quota_by_cached`] |
//! | another algorithm for some requests | a second limit with [`Limit::only_if`], or [`TiersBuilder::tier_with`] |
//! | requests without any limit | [`LimitsBuilder::exempt`] |

mod cached;
pub(crate) mod door;
pub(crate) mod group;
pub(crate) mod limit;
mod of_request;
#[doc(hidden)]
pub mod path;
pub(crate) mod plan;
pub(crate) mod predicate;
pub(crate) mod quotas;
pub(crate) mod select;
pub(crate) mod source;
pub(crate) mod tiers;
pub(crate) mod walk;

pub use self::group::{Choose, Group, IntoGroup, IntoLimit};
pub use self::limit::Limit;
pub use self::path::{PathReading, path_in, path_not_in};
pub use self::predicate::{method_in, preflight};
pub use self::quotas::ChosenQuotas;
pub use self::select::{Select, Selected};
pub use self::tiers::{Tiers, TiersBuilder};
pub use crate::admission::admitted::Admitted;
pub use crate::admission::builder::LimitsBuilder;
pub use crate::admission::decide::Admission;
pub use crate::admission::explanation::{AskExplained, Explanation, LimitExplained, WouldBe};
pub use crate::admission::handle::LimitsHandle;
pub use crate::admission::met::{Meeting, Met, MetAsk, NoAsk};
pub use crate::admission::refused::Refused;
pub use crate::admission::set::Limits;
pub use crate::admission::shadow::ShadowCount;
