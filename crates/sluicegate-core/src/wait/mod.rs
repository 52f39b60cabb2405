//! Queues for reserved turns: first come, first served, without polling.
//!
//! A store gives turns: moments at which a cost may proceed. This module, in the process, decides which request
//! proceeds at which moment, because requests leave while they wait. The terms:
//!
//! | term | meaning |
//! |---|---|
//! | [`LineKeys`] | the limiters, with their keys, that make a request wait longest, mostly one: requests of one line can use each other's turns |
//! | [`UnitsHeld`] | units that the other limiters hold for a request until it proceeds; they stay with the request |
//! | class | the requests of a line with the same costs, in order of arrival |
//! | slot | a turn that the store has given, and the decision by which it did |
//! | spare | a slot that no request waits for and that the store did not take back |
//!
//! # Invariants
//! - A class has as many slots as waiting requests. The first request proceeds at the first slot,
//!   whichever request reserved it.
//! - A request with held units proceeds no later than at its own turn, until which they are held, and
//!   keeps its own slot until the limits that hold them would have let it proceed.
//! - When a request leaves, the *last* slot of its class is removed, and all requests behind it move up.
//! - A slot is given back to the store, or kept as a spare until it has passed, or lost. It is never
//!   used twice, and never used again if its return was not answered.
//! - A turn that has come is spent, polled or not: a request that is not polled delays no other.
//!
//! # Locking
//! There is one mutex per queue, owned by the limiter of the first limit. Under it no store is asked, no waker is called and
//! nothing is awaited; wake-ups are collected and sent after it is released. No
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
