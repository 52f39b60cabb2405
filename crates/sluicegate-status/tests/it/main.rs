//! The promises of the page, tried from outside: what it shows, whom it lets in, and what it does. Time moves only by hand.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod access;
mod adaptive;
mod budgets;
mod change;
mod digests;
mod look_up;
mod offenders;
mod outage;
mod results;
mod rooms;
mod shown;
mod support;
