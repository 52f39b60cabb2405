//! Load that is too much for now, and is neither refused nor lost: deferred jobs, and lines that instances share.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod deferred;
#[path = "../../examples/deferred/main.rs"]
#[expect(dead_code, reason = "its `main` is for those who run it")]
mod deferred_example;
mod killed;
mod lines;
mod support;
