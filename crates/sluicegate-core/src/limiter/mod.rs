//! The user's handle: [`RateLimiter`].
//!
//! | call | spends | answers |
//! |---|---|---|
//! | [`check`](RateLimiter::check) | one unit, if allowed | now |
//! | [`check_up_to`](RateLimiter::check_up_to) | as much of a cost as there is | now |
//! | [`check_many`](RateLimiter::check_many) | as many checks, of a key each | now |
//! | [`peek`](RateLimiter::peek) | nothing | now |
//! | `acquire` (feature `tokio`) | some units | when it is the caller's turn, or at once that this is too far away |
//! | [`reserve`](RateLimiter::reserve) | some units, or a turn in the future | now, with the delay to be kept |
//! | [`charge`](RateLimiter::charge) | some units, into debt if they do not fit | now |
//! | [`refund`](RateLimiter::refund), [`refund_of`](RateLimiter::refund_of) | gives back | now |
//! | [`reset`](RateLimiter::reset) | forgets the key | now |
//! | [`reset_all`](RateLimiter::reset_all) | forgets every key | now, without the store |
//! | [`suspend`](RateLimiter::suspend), [`release`](RateLimiter::release) | nothing; the key is refused outright for a time, or no longer | now |
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
//! // With a cost of its own, of which a part is given back.
//! let mut batch = mail.check_cost("ada", 2).await?;
//! let mut receipt = batch.take_receipt(0).ok_or("it has spent")?;
//! mail.refund_of(&mut receipt, "ada", 1).await?;
//! assert_eq!(mail.peek("ada").await?.remaining(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Which call
//! - *Before the work*, with a known cost: `check`. Costs that are known only afterwards are
//!   charged afterwards, or estimated before and settled by `refund_of`.
//! - *A job that may wait*: `acquire`. It keeps the order of arrival and needs no loop of checks
//!   and sleeps.
//! - *For a display*: `peek`. A peek and a later check are two calls, and another request may come
//!   between them, so never decide by a peek.
//!
//! # When not to use it
//! Around an HTTP service use the layer, which finds the key, writes the header fields and keeps
//! the delays. For work that is limited by how much of it goes on at once, use
//! [`in_flight`](crate::in_flight).
//!
//! # An outage
//! A question (`check`, `peek`, `reserve`, `acquire`) that the store does not answer becomes a
//! decision by what the policy [says of an outage](crate::OnOutage). A report (`charge`, `refund`,
//! `reset`) stays an error, because it may or may not have happened:
//! [`StoreError::may_have_spent`](crate::StoreError::may_have_spent) tells.

mod by_hand;
mod calls;
mod decide;
mod handle;
mod handles;
mod many;
mod open;
mod opened_at;
mod overrides;
mod pinned;
mod quotas;
mod replacement;
#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests;
mod together;
#[cfg(feature = "tokio")]
mod turn;

pub use self::handle::RateLimiter;
pub use self::overrides::{OverrideError, OverrideErrorKind, Overrides};
pub use self::together::Change;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::turn::Turn;
pub use crate::algorithm::Inherit;
pub use crate::receipt::Receipt;
pub use crate::store::Limiters;
