//! The embedded store: fixed tables, no background task, no unsafe code.
//!
//! It decides in tens of nanoseconds and is the right store for one process, for tests, and as the
//! fallback of a `Resilient` store.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! // Room for a million keys in debt in each quota of each policy: 24 MB for GCRA.
//! let store = MemoryStore::builder().table_size(1_000_000).build()?;
//! let api = Policy::gcra("api", "100/min").on(&store)?;
//! assert!(api.check("ada").now().expect("memory answers at once")?.is_allowed());
//! assert_eq!(store.stats().evictions, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! - Where several instances of a service share a limit of L: N instances admit N times L, unless
//!   each is given an Nth ([`Policy::share`](crate::Policy::share)). Then Redis is the store.
//! - Where a restart must not forgive: nothing survives it.
//!
//! # How it is made
//! A decision hashes the key together with a number of its quota, locks one set of 64 bytes, and
//! reads and writes two or three numbers there. A key whose state is at rest takes no room, because
//! a missing key decides the same; so nothing has to be swept, and there is no task to start or to
//! forget.
//!
//! | room | is |
//! |---|---|
//! | `table` | the sets: slots, tags, the lock, who makes room |
//! | `logs` | sliding logs, whose states are lists |
//! | `context` | sizes, time, hash and numbers, the same for all buckets of a store |
//! | `home`, `place` | one interface to both |
//! | `plans` | the rules by which keys are counted that bring quotas of their own |
//! | `decide` | the ways of deciding, of which the general one is right for everything |
//! | `change` | what an ask does to a state |
//! | `bucket`, `handover` | a policy's quotas, and how keys go on when it is replaced |
//! | `holds`, `ahead`, `account` | units held for waiting requests, turns that are out, what was given back |
//! | `leases`, `floors`, `beside` | units that instances have leased; how low a bucket may sink meanwhile; maps for few keys |
//!
//! # Locking
//! Sets and shards of one decision are locked together, each once, in the order of their buckets'
//! numbers and then of their indices, and all are held until the states are written. Holds of
//! waiting requests, and the floors of leases, have a mutex per bucket, taken under the set's lock and never before it. The
//! clock is read under the locks wherever a state is not a level, so that the times in one state
//! never go backwards.

mod account;
mod ahead;
mod beside;
mod bucket;
mod buckets;
mod builder;
mod change;
mod context;
mod decide;
mod floors;
mod handover;
mod holds;
mod home;
mod leases;
mod logs;
mod place;
mod plans;
mod replaced;
mod store;
mod table;

pub use self::builder::MemoryStoreBuilder;
pub use self::store::MemoryStore;
pub use crate::status::MemoryStats;
