//! The number of requests that a service can handle, estimated from its answers: [`Estimate`].
//!
//! No clock, no lock, no float: an [`Estimate`] takes a [`Sample`] for each answer, hears of each request that found no permit, and has the
//! number of requests that may be under way. `InFlight::adaptive` does so with each request; this module is for other uses of the number.
//!
//! ```
//! use std::time::Duration;
//! use sluicegate_in_flight::adaptive::{Estimate, LimitAlgorithm, LimitBounds, Outcome, Sample};
//!
//! // A service that can handle any number of requests, each in 20 ms, and 5,000 requests a second: a hundred at once.
//! let mut estimate = Estimate::new(LimitAlgorithm::default(), LimitBounds::default());
//! let (mut now, latency) = (Duration::ZERO, Duration::from_millis(20));
//! while now < Duration::from_secs(2) {
//!     let in_flight = estimate.limit().min(100);
//!     now += latency / u32::try_from(in_flight)?;
//!     estimate.add(now, Sample { latency, in_flight, outcome: Outcome::Good });
//!     while estimate.limit() < 100 && estimate.demand(now) {}
//! }
//! assert!(estimate.limit() >= 100, "{}", estimate.limit());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! If latency does not depend on load, for example for long polls: they wait for events, and these do not limit their number.

mod algorithm;
mod estimate;
mod gradient;
mod window;

pub use self::algorithm::LimitAlgorithm;
pub use self::estimate::{Estimate, LimitBounds};
pub use self::window::{Outcome, Sample};
