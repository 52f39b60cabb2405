//! How policies are written, and how they must not be.

mod bad_input;
mod words;
