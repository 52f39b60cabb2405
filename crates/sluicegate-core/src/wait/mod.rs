//! Queues for reserved turns: first come, first served, without polling.

mod class;
mod lines;
mod queues;
mod slot;
mod under;

pub(crate) use self::queues::{Place, Queues};
pub(crate) use self::under::{Costs, Identity, Line, Receipts, Under};
