//! A fleet that shares limits, on virtual time.
//!
//! Instances run the real stores around stores; the store that they share is a memory behind a network that delays, loses and
//! parts. Everything is drawn from a seed, so that each run of up to [some 2,000 keys](Plan::is_repeatable) can be repeated to the byte.
//! Afterwards every key's admissions are checked against the algorithm's own law, worked out from its definition.
//!
//! ```
//! use sluicegate_simulator::{Plan, Run};
//!
//! let plan = Plan::parsed(["--instances", "4", "--requests", "2000", "--wrap", "resilient", "--loss", "20"])?;
//! let run = Run::of(&plan)?;
//! assert_eq!(run.broken(run.law()), []);
//! println!("{run}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(
    missing_debug_implementations,
    clippy::exhaustive_structs,
    clippy::exhaustive_enums,
    clippy::missing_panics_doc,
    reason = "nobody but tests and people at a prompt call this"
)]

pub mod adaptive;
mod drive;
mod fault;
mod fleet;
mod law;
mod log;
mod network;
mod picture;
mod plan;
mod report;
mod request;
mod run;
mod server;
mod time;

pub use self::fault::Fault;
pub use self::law::{Admission, Excess, Law, Loss};
pub use self::log::{Log, Slice};
pub use self::network::Cut;
pub use self::plan::{Plan, Wrapper};
pub use self::run::{Broken, Run};
