//! The user's handle: [`RateLimiter`].
//!
//! | call | spends | answers |
//! |---|---|---|
//! | [`check`](RateLimiter::check) | the cost, if allowed | now |
//! | `check(..)`[`.up_to(..)`](Check::up_to) | the available part of a cost | now |
//! | `check(..)`[`.reserve(..)`](Check::reserve) | the cost, or a turn in the future | now, with the delay to wait |
//! | `check(..).acquire(..)` (feature `tokio`) | the cost | when the caller's turn has come, or at once if it is too far away |
//! | [`check_all`] | all of several checks or none | now |
//! | [`peek`](RateLimiter::peek) | nothing | now |
//! | [`charge`](RateLimiter::charge) | the cost, into debt if it does not fit | now |
//! | [`refund`](RateLimiter::refund) | gives back | now |
//! | [`reset`](RateLimiter::reset) | forgets the key | now |
//! | [`reset_all`](RateLimiter::reset_all) | forgets every key | now, without the store |
//! | [`suspensions`](RateLimiter::suspensions) | nothing; suspends or releases a key | now |
//!
//! "Now" is at once in memory, and one round trip on Redis.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let mail = Policy::gcra("mail", "3/h").on(&store)?;
//! assert_eq!(mail.check("ada").await?.remaining(), 2);
//!
//! // With another cost, partly given back afterwards.
//! let mut batch = mail.check("ada").cost(2).await?;
//! let mut receipt = batch.take_receipt(0).ok_or("it has spent")?;
//! mail.refund("ada", 1).of(&mut receipt).await?;
//! assert_eq!(mail.peek("ada").await?.remaining(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Which call
//! - *Before the work*, with a known cost: `check`. A cost that is known only afterwards is
//!   charged afterwards, or estimated before and settled by a refund of the receipt.
//! - *A job that may wait*: `acquire`. It keeps the order of arrival and needs no loop of checks
//!   and sleeps.
//! - *For a display*: `peek`. A peek and a later check are two calls, and another request may come
//!   between them, so never decide with a peek.
//!
//! # When not to use it
//! Around an HTTP service use the layer, which finds the key, writes the header fields and keeps
//! the delays. To limit concurrent work, use
//! `InFlight` of the crate `sluicegate-in-flight`.
//!
//! # An outage
//! When the store does not answer a question (`check`, `peek`), the policy [says](crate::OnOutage) what
//! the decision. A report (`charge`, `refund`,
//! `reset`) stays an error, because it may or may not have happened:
//! [`StoreError::may_have_spent`](crate::StoreError::may_have_spent) says whether it may have.

mod check;
mod handle;
#[cfg(feature = "tower")]
mod no_layer;
mod open;
mod overrides;
#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests;
#[cfg(feature = "tokio")]
mod turn;

pub use self::check::{Change, Check, Suspensions, change_all, check_all, policies};
pub use self::handle::RateLimiter;
pub use self::open::{open_all, replace_all};
pub use self::overrides::{OverrideError, OverrideErrorKind, Overrides};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::turn::{Acquired, Turn};
pub use crate::algorithm::Inherit;
pub use crate::receipt::Receipt;
pub use crate::store::Limiters;
