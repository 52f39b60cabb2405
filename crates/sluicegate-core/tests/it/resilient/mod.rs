//! Stores that fail, behind `Resilient`.

mod closing;
mod events;
mod outages;
mod split;
