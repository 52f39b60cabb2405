//! `#[rate_limited]` at run time, tried from outside. Time moves only by hand, or is tokio's paused time.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod agreement;
mod default_limit;
mod mistakes;
mod several;
mod stores;
mod support;
mod waiting;
