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
//! - If several instances of a service share a limit of L: N instances admit N times L, unless
//!   each has an Nth of it ([`Policy::share`](crate::Policy::share)). Use Redis instead.
//! - If a restart must not forget spent units: no state survives it.
//!
//! # How it is made
//! A decision hashes the key with a number of its quota, locks one set of 64 bytes, and
//! reads and writes two or three numbers there. A key whose state is at rest takes no room, because
//! a missing key decides in the same way; so no sweep and no background task is
//! needed.
//!
//! | module | contents |
//! |---|---|
//! | `store`, `buckets` | the store, and the quotas of a policy with what replaces them |
//! | `table` | the sets: slots, tags, the lock, evictions |
//! | `logs` | sliding logs, with lists as states |
//! | `slot` | the words of a state, and the rules by which keys are counted |
//! | `home` | one interface to tables and logs |
//! | `context` | sizes, time, hash and numbers, the same for all buckets of a store |
//! | `decide` | the ways of deciding; the general one handles all cases |
//! | `change` | the effect of an ask on a state, leases among them |
//! | `handover` | the handover of keys when a policy is replaced |
//! | `beside` | facts about few keys: accounts, reserved turns, floors |
//!
//! # Locking
//! Sets and shards of one decision are locked together, each once, in the order of their buckets'
//! numbers and then of their indices, and all are held until the states are written. The
//! floors of leases have a mutex per bucket, taken under the set's lock and never before it. The
//! clock is read under the locks if a state is not a level, so that the times in one state
//! never go backwards.

mod beside;
mod buckets;
mod change;
mod context;
mod decide;
mod handover;
mod home;
mod logs;
mod slot;
mod store;
mod table;

pub use self::store::{MemoryStore, MemoryStoreBuilder};
pub use crate::status::MemoryStats;
