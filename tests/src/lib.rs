//! Support for the tests of all crates: whatever two test binaries need stands here, once.
//!
//! Tests inside of a crate's `src` cannot use it: it stands on the crate as others see it, not on the one under test.
#![allow(
    missing_debug_implementations,
    clippy::exhaustive_structs,
    clippy::unwrap_used,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "nobody but tests calls this, and a test stops where it fails"
)]

pub mod around;
pub mod docs;
pub mod frames;
pub mod log;
pub mod memory;
pub mod outages;
pub mod process;
pub mod random;
#[cfg(feature = "servers")]
pub mod servers;
pub mod streams;
pub mod time;

/// The examples of the attribute, whose own crate cannot run them.
#[cfg(doctest)]
#[doc = include_str!(concat!(env!("OUT_DIR"), "/attribute.md"))]
pub struct AttributeExamples;
