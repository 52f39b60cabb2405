//! How many at once.

mod downloads;
mod permits;
mod upgrades;
