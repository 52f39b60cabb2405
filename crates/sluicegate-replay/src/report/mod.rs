//! The outcome as one page: no script, no other file, no network.

mod chart;
mod page;
