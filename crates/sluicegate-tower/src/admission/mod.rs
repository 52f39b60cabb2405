//! The decision on a request, and its consequences: [`Limits`](set::Limits) without a service.
//!
//! | file | step of a request |
//! |---|---|
//! | `set`, `builder`, `check` | before any request: limits with their settings, checked |
//! | `begin` | with the limits of this moment, which are swapped as a whole; through a single plain limit |
//! | `way`, `asking` | through any others: door, limits, decision, turn, each step at once where it can be |
//! | `asks`, `together` | what a request asks of which limiters, and by which policies |
//! | `end`, `admitted`, `refused`, `restate` | the two ends, and what the response shows |
//! | `meter` | what a request spends while it is served |
//! | `report` | what is told of requests: events for the store, lines in the log |
//! | `shadow`, `trial` | policies that are only tried out |
//! | `explain`, `foreseen`, `explanation` | the same way, looked at instead of walked |
//! | `met` | what a request asks, for others to decide |
//!
//! # Invariants
//! - All enforced limits of a request are one call of one store: all spend or none does.
//! - A request keeps the limits that it began with, whatever is swapped meanwhile.
//! - What is given back is given back once: a receipt moves from the decision to the meter, and
//!   from there to the store.
//! - A shadow policy is asked when the enforced limits have let the request pass, and nobody waits
//!   for its answer.

pub(crate) mod admitted;
mod asking;
pub(crate) mod asks;
pub(crate) mod begin;
pub(crate) mod builder;
pub(crate) mod check;
pub(crate) mod decide;
pub(crate) mod end;
mod explain;
pub(crate) mod explanation;
mod foreseen;
pub(crate) mod met;
pub(crate) mod meter;
pub(crate) mod refused;
mod report;
pub(crate) mod restate;
pub(crate) mod set;
pub(crate) mod shadow;
mod together;
pub(crate) mod trial;
pub(crate) mod way;
