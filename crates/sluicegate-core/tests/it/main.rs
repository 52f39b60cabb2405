//! What the crate promises, tried from outside: one binary, a module per idea. Time moves only by hand.

mod exact;
mod model;
mod support;
mod vectors;
