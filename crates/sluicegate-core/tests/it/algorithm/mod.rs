//! What each algorithm decides: by hand, by others' vectors, and beside exact models of their definitions.

mod back;
#[cfg(feature = "calendar")]
mod calendar;
pub(crate) mod exact;
pub(crate) mod model;
mod periods;
mod resolution;
mod vectors;
mod worked_examples;
