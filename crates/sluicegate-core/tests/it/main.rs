//! What the crate promises, tried from outside: one binary, a module per idea. Time moves only by hand.

mod bad_input;
mod bounded;
mod closing;
mod concurrency;
mod crowd;
mod exact;
mod floods;
mod handles;
mod in_flight;
mod inherited;
mod invariants;
mod leaving;
mod model;
mod refunds;
mod replace;
mod reservations;
mod resilient;
mod spent;
mod support;
mod turns;
mod vectors;
mod waiting;
mod worked_examples;
