//! The decision on a request, and its consequences: [`Limits`](set::Limits) without a service.
//!
//! | file | step of a request |
//! |---|---|
//! | `set`, `builder`, `check` | before any request: limits with their settings, checked |
//! | `handle` | the current limits, which are swapped as a whole |
//! | `begin` | decides by one look at a key, if only one limit applies |
//! | `way` | decides by any other limits: what a request asks, and the stages in which it may wait |
//! | `asks`, `together` | the limiters that a request asks, and their policies |
//! | `admitted`, `refused` | the two ends |
//! | `marks`, `body_holds`, `leave`, `restate` | the admitted request and its response |
//! | `meter` | costs that are known while a request is served |
//! | `report` | events for the store, and lines in the log |
//! | `shadow` | policies in shadow |
//! | `explain`, `foreseen`, `explanation` | the expected decision, without spending |
//! | `met` | the asks of a request, for callers that decide themselves |
//!
//! # Invariants
//! - All enforced limits of a request are one call of one store: all spend or none does.
//! - A request keeps the limits that it began with, whatever is swapped meanwhile.
//! - Units are given back only once: a receipt moves from the decision to the meter, and
//!   from there to the store.
//! - A shadow policy is asked after the enforced limits have admitted the request, and its answer is
//!   not waited for.

pub(crate) mod admitted;
pub(crate) mod asks;
mod begin;
mod body_holds;
pub(crate) mod builder;
pub(crate) mod check;
pub(crate) mod decide;
mod explain;
pub(crate) mod explanation;
mod foreseen;
pub(crate) mod handle;
mod leave;
pub(crate) mod marks;
pub(crate) mod met;
pub(crate) mod meter;
pub(crate) mod refused;
mod report;
pub(crate) mod restate;
pub(crate) mod set;
pub(crate) mod shadow;
mod together;
pub(crate) mod way;
