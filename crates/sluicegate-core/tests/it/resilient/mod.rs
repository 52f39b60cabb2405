//! Stores that fail, behind `Resilient`.

mod closing;
mod outages;
