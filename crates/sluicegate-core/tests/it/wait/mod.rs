//! Turns, queues, and units that are held for a request which waits.

mod crowd;
mod goodput;
mod leaving;
mod reservations;
pub(crate) mod turns;
mod waiting;
