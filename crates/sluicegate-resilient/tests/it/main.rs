//! Stores that fail, behind `Resilient`.

mod closing;
mod events;
pub(crate) mod outages;
mod own_quota;
mod parts;
