//! Queues for reserved turns: first come, first served, without polling.
//!
//! A store gives turns: moments at which a cost may go on. Which request goes at which moment is
//! decided here, in the process, because requests leave while they wait. The words:
//!
//! | word | is |
//! |---|---|
//! | [`LineKeys`] | the limiters, with their keys, that make a request wait longest, mostly one: requests of one line can use each other's turns |
//! | [`UnitsHeld`] | units that the other limiters of a request hold until it goes; they stay its own |
//! | class | the requests of a line with the same costs, in order of arrival |
//! | slot | a turn that the store has given, and the decision by which it did |
//! | spare | a slot that no request waits for and that the store did not take back |
//!
//! # Invariants
//! - A class has as many slots as waiting requests. The first request goes at the first slot,
//!   whoever reserved it.
//! - A request with held units goes no later than at its own turn, until which they are held, and
//!   keeps its own slot until the limits that hold them would have let it go.
//! - A request that leaves takes the *last* slot of its class out: all behind it move up.
//! - A slot is given back to the store, or kept as a spare until it is over, or lost. It is never
//!   used twice, and one whose return was not answered is never used again.
//! - A turn that has come is spent, polled or not: a request that is not polled holds up no other.
//!
//! # Locking
//! One mutex per limiter, that of the first limit. Under it no store is asked, no waker called and
//! nothing awaited; news for others is collected and told after it is released. No
//! second lock is taken under it.

mod class;
mod lines;
mod queues;
mod slot;
mod under;

pub(crate) use self::queues::{Queues, TurnPlace};
pub(crate) use self::under::{
    AskCosts, Identity, LimitersOfTurn, LineKeys, RequestParts, TurnReceipts, UnitsHeld,
};
