//! The layer around a service: what it lets through, and what it gives back.

mod combinations;
mod crowd;
mod giving_back;
mod inputs;
pub(crate) mod meter;
mod meter_reach;
mod modes;
mod queue;
mod quiet;
pub(crate) mod readiness;
mod refunds;
pub(crate) mod reloads;
mod routes;
mod settling;
mod shadow;
mod stacked;
mod stacked_waits;
mod stores;
mod traces;
mod wait_spans;
pub(crate) mod waiting;
