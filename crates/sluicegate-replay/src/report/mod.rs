//! The outcome as one page, and as a picture: no script, no other file, no network.

mod chart;
mod page;
mod picture;
