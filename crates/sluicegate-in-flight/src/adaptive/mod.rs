//! The number of requests that a service can handle, estimated from their latency: [`Estimate`].
//!
//! Pure functions of samples: no clock, no lock, no float. [`Samples`] sums up latencies and closes a [`SampleWindow`] from time to time;
//! an [`Estimate`] turns each window into the number of requests that may be under way in the next one. `InFlight::adaptive`
//! does both with each request; this module is for other uses of the number.
//!
//! ```
//! use std::time::Duration;
//! use sluicegate_in_flight::adaptive::{LimitBounds, Estimate, LimitAlgorithm, Sample, Samples};
//!
//! // A service with ten workers, each busy with a request for 20 ms; all others wait inside it.
//! let latency = |in_flight: u64| Duration::from_millis(20 * in_flight.max(10) / 10);
//! let mut estimate = Estimate::new(LimitAlgorithm::default(), LimitBounds::default());
//! let mut samples = Samples::new(10);
//! let mut now = Duration::ZERO;
//! while now < Duration::from_secs(60) {
//!     let in_flight = estimate.limit();
//!     now += latency(in_flight) / u32::try_from(in_flight)?;
//!     let sample = Sample { latency: latency(in_flight), in_flight, is_fault: false };
//!     if let Some(window) = samples.add(now, sample) {
//!         estimate.update(&window);
//!     }
//! }
//! assert!((8..16).contains(&estimate.limit()), "{}", estimate.limit());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! If latency does not depend on load, for example for long polls: they wait for events, and these do not limit their number.

mod aimd;
mod algorithm;
mod estimate;
mod gradient;
mod gradient2;
mod histogram;
#[cfg(test)]
mod model;
mod vegas;
mod window;

pub use self::algorithm::LimitAlgorithm;
pub use self::estimate::{Estimate, LimitBounds};
pub use self::window::{Sample, SampleWindow, Samples};
