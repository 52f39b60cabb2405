//! The promises of the crate, tried from outside: one binary, a folder for each room of `src`. Time moves only by hand.

mod algorithm;
mod lease;
mod limiter;
mod memory;
mod policy;
mod support;
mod suspension;
mod wait;
mod wrap;
