//! Keeps rate limits in force while their store is down: [`Resilient`], a store wrapper.
//!
//! ```
//! use sluicegate_core::{OnOutage, Policy};
//! use sluicegate_resilient::Resilient;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let redis = sluicegate_core::MemoryStore::new();
//! let store = Resilient::builder(redis).replicas(4).build()?; // four instances of this service
//! let search = Policy::gcra("search", "100/min").on(&store)?; // 25 here while the store is down
//! let payment = Policy::gcra("payment", "5/min").on_outage(OnOutage::Deny).on(&store)?;
//! assert!(search.check("ada").await?.is_allowed() && payment.check("ada").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! Do not use it around a [`MemoryStore`](sluicegate_core::MemoryStore), which cannot fail.
//!
//! # What it guards against
//! | event | without `Resilient` | with it |
//! |---|---|---|
//! | the store refuses connections | each request asks in vain | after five failures no request asks it, for 0.2 to 1 s at a time |
//! | the store hangs | each request waits for the deadline | only the first few requests and occasional trials wait |
//! | the store is back | all callers ask it at once | a tenth of the calls at first, all after a second |
//! | the store lost a node | requests of that node fail | only requests that need that node fall back |
//! | units were spent meanwhile | no store counted them | they are charged to the store when it is back |
//!
//! # How it is made
//! A breaker for each part of the store decides whether the part is asked ([`BreakerSettings`]). If it is
//! not, each policy's `OnOutage` decides: the fallback, a memory store with a share
//! of each quota, or a fixed answer. The fallback records admitted units as debts, and one background
//! task at a time charges the debts to the store. These parts are separate files without references to
//! each other; `store` connects them.
//!
//! # Locking
//! Breakers have no lock. Debts and the list of parts that are down have a mutex each, never held
//! together or across an await. Listeners are told when no lock is held.

mod breaker;
mod builder;
mod debts;
mod fallback;
mod parts;
mod settle;
mod state;
mod store;

pub use sluicegate_core::store::{BreakerState, ResilientStatus};

pub use self::breaker::BreakerSettings;
pub use self::builder::ResilientBuilder;
pub use self::store::{Resilient, Unsettled};
