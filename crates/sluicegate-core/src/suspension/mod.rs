//! Refusing a key outright that goes on after many refusals, and by hand.
//!
//! A limit that refuses costs a stuck client nothing: it can go on forever, and each refusal costs the service a decision, a
//! response and a line in a log. A policy with a [suspension](PolicyBuilder::suspend) refuses such a key outright for a time,
//! twice as long each time, and says so: [`Outcome::Suspended`](crate::Outcome::Suspended), and in HTTP 429 with the problem
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
//! // By hand, whatever was refused before.
//! let suspended = api.suspensions().suspend("eve", Duration::from_secs(600)).await?;
//! assert_eq!(minutes(suspended.retry_after()), Some(10));
//! assert!(api.suspensions().release("eve").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # fail2ban and allow2ban
//! With `suspend(1, ..)` the first refusal suspends, so that the quota says how much is too much. A policy that counts failures
//! only, by a [charge](crate::RateLimiter::charge) after each failed login, is fail2ban; one that counts every request is
//! allow2ban:
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
//! // 600 requests in a minute, of whatever kind: out for a day.
//! let requests = Policy::sliding_counter("requests", "600/min").suspend(1, "1min", "1d").on(&store)?;
//! assert!(requests.check("ada").await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # How it is kept
//! A policy has three more buckets of its store: the refusals of a key and its suspensions, as sliding logs, and the rest of a
//! suspension, as a debt of milliseconds that drains. So a suspension is the same in memory and on Redis, for one process
//! and for many, and nothing has to be swept. They are called as the policy, with the endings `.strikes`, `.suspensions` and
//! `.suspended`. In memory they take 24 bytes per key that the policy has [room](PolicyBuilder::table_size) for, and those of two logs
//! as refusals come.
//!
//! A decision looks at the suspension in its own call. A refusal that counts makes a second call, and the one that suspends a
//! third; the caller gets its answer after them. So the next request of the key is refused by every process alike, and the
//! answer that suspends a key says so. A caller that hangs up in the meantime changes nothing: what has begun is finished, where
//! there is a tokio runtime (feature `tokio`).
//!
//! # In an outage
//! Where the suspension of a key cannot be read, the policy's [`OnOutage`](crate::OnOutage) decides. A refusal that no store has made
//! does not count. A `Resilient` store that decides locally knows the suspensions that its own process has made, and counts
//! refusals with its share of them. When the store is back, a key that several processes have suspended is suspended there until
//! the latest of their ends, and counts as suspended once; a suspension that has begun and ended in the same outage is forgotten.
//!
//! # When not to use it
//! Where many clients share a key that none of them has chosen, such as the address of a company, a suspension hits all of them.

mod ask;
mod buckets;
mod by_hand;
mod finished;
mod restate;
mod strike;
mod strikes;

pub(crate) use self::ask::{decide, suspends};
pub(crate) use self::buckets::{may_close, open, replaced};
pub(crate) use self::by_hand::change;
pub(crate) use self::finished::finished;
pub use self::strikes::Strikes;
pub(crate) use self::strikes::strikes;
#[cfg(doc)]
use crate::policy::PolicyBuilder;
pub use crate::policy::Suspension;
