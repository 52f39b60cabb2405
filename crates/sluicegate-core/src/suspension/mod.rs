//! Refusing a key outright if it continues after many refusals, or by hand.
//!
//! A refusal costs a stuck client nothing: it can continue forever, and each refusal costs the service a decision, a
//! response and a log line. A policy with a [suspension](PolicyBuilder::suspend) refuses such a key outright for a time,
//! twice as long each further time, and says so: [`Outcome::Suspended`](crate::Outcome::Suspended), and in HTTP 429 with the problem
//! type `abnormal-usage-detected` and the exact wait.
//!
//! ```
//! use std::time::Duration;
//! use sluicegate_core::clock::ManualClock;
//! use sluicegate_core::{MemoryStore, Outcome, Policy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::new();
//! let store = MemoryStore::builder().clock(clock.clone()).build()?;
//! let api = Policy::gcra("api", "1/s").suspend(2, "10min", "30min").up_to("1d").remember("1d").on(&store)?;
//!
//! let minutes = |wait: Option<Duration>| wait.map(|wait| wait.as_secs() / 60);
//! for expected in [30, 60, 120] {
//!     assert!(api.check("ada").await?.is_allowed());
//!     assert_eq!(api.check("ada").await?.outcome(), Outcome::Denied);
//!     let second = api.check("ada").await?;
//!     assert_eq!((second.outcome(), minutes(second.retry_after())), (Outcome::Suspended, Some(expected)));
//!     clock.advance(Duration::from_secs(expected * 60));
//! }
//!
//! // By hand, independent of earlier refusals.
//! let suspended = api.suspensions().suspend("eve", Duration::from_secs(600)).await?;
//! assert_eq!(minutes(suspended.retry_after()), Some(10));
//! assert!(api.suspensions().release("eve").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # fail2ban and allow2ban
//! With `suspend(1, ..)` the first refusal suspends, so that the quota is the threshold. A policy that counts only
//! failures, by a [charge](crate::RateLimiter::charge) after each failed login, works like fail2ban; a policy that counts every request
//! works like allow2ban:
//!
//! ```
//! use sluicegate_core::{MemoryStore, Outcome, Policy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! // Five failed logins in ten minutes: the next try is refused, and all that follow for an hour.
//! let failures = Policy::sliding_log("login-failures", "5/10min").suspend(1, "10min", "1h").on(&store)?;
//! for _ in 0..5 {
//!     assert!(failures.peek("ada").await?.is_allowed());
//!     failures.charge("ada", 1).await?; // the password was wrong
//! }
//! assert_eq!(failures.check("ada").await?.outcome(), Outcome::Suspended);
//!
//! // 600 requests of any kind in a minute: suspended for a day.
//! let requests = Policy::sliding_counter("requests", "600/min").suspend(1, "1min", "1d").on(&store)?;
//! assert!(requests.check("ada").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # How it is kept
//! The policy has three additional buckets in its store: the refusals of a key and its suspensions, as sliding logs, and the rest of a
//! suspension, as a draining debt of milliseconds. So a suspension is the same in memory and on Redis, for one process
//! and for many, and needs no sweep. They have the name of the policy with the endings `.strikes`, `.suspensions` and
//! `.suspended`. In memory they take 24 bytes per key that the policy has [room](PolicyBuilder::table_size) for, plus the memory of two logs
//! as refusals come.
//!
//! A decision checks the suspension in its own call. A counted refusal makes a second call, and the refusal that suspends a key makes a
//! third; the caller gets its answer after them. So every process refuses the next request of the key, and the
//! answer that suspends a key says so. If the caller hangs up in the meantime, the work is still finished, if
//! there is a tokio runtime (feature `tokio`).
//!
//! # In an outage
//! If the suspension of a key cannot be read, the policy's [`OnOutage`](crate::OnOutage) decides. A refusal without a store
//! does not count. A `Resilient` store that decides locally knows the suspensions of its own process, and counts
//! refusals with its share of them. When the store is back, a key that several processes have suspended is suspended there until
//! the latest end, and counts as suspended once; a suspension that began and ended in the same outage is forgotten.
//!
//! # When not to use it
//! Do not suspend keys that many clients share without their choice, such as the address of a company: a suspension hits all of them.

mod ask;
mod strike;

pub(crate) use self::ask::{decide, finished, suspends};
pub use self::strike::Strikes;
pub(crate) use self::strike::{SuspensionLines, change, open, replaced, strikes};
#[cfg(doc)]
use crate::policy::PolicyBuilder;
pub use crate::policy::Suspension;
