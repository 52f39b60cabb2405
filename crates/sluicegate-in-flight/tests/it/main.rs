//! The promises of the crate, tried from outside: one binary. Time moves only by hand.

mod adaptive;
mod permits;
