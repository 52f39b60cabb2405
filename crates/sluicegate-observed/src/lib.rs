//! Shows which keys are limited, by which policy, and why: [`Observed`], a store wrapper that counts every decision.
//!
//! Add one line around the store of the limiters. Each decision is counted once for each policy that it asked,
//! from any source: a layer, a handle, an attribute, an outgoing call, a policy in shadow.
//!
//! ```
//! use sluicegate_observed::Observed;
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let store = Observed::named("memory", MemoryStore::new())?;
//! let login = Policy::gcra("login", "5/min").on(&store)?;
//! for _ in 0..7 {
//!     login.check("ada").now().expect("memory answers at once")?;
//! }
//! let login = &store.snapshot().policies[0];
//! assert_eq!((login.totals.allowed, login.totals.rejected, login.units.spent), (5, 2, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! Do not use it if you do not read its numbers: counting costs every decision a few nanoseconds.

mod budgets;
mod counts;
mod events;
mod lanes;
mod meter;
mod metrics;
mod observed;
mod offenders;
mod rates;
mod snapshot;
mod state;
mod store;
mod tighten;
mod unusual;

pub use self::budgets::KeyBudget;
pub use self::counts::Answer;
pub use self::events::{Events, OutageCounts, PastEvent};
pub use self::metrics::{BUCKETS, METRICS, Metric, MetricKind};
pub use self::observed::Observed;
pub use self::offenders::{Asker, Offender, OffenderKind, ShownKey};
pub use self::snapshot::{
    InFlightSnapshot, Minute, PolicySnapshot, Rate, Snapshot, StoreErrors, StoreSnapshot, StoreState, Totals,
    UnitTotals,
};
