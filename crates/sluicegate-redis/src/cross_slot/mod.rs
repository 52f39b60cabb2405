//! One request whose keys live in several hash slots of a Cluster: each slot decides for itself, and all together.
//!
//! All slots are looked at first, so that a request which is refused spends nowhere. Then it spends in one slot after the
//! other, where least is left first, and in the others only after that has passed. What it spends is marked until the request
//! is decided: a refusal that is due to marked units of others is no answer yet, and the request asks once more.

mod decide;
mod give_up;
mod parts;

pub(crate) use self::decide::decide;
