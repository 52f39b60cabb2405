//! `#[rate_limited]` at run time, tried from outside. Time moves only by hand, or is tokio's paused time.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod agreement;
mod conditional;
mod decided;
mod default_limit;
mod doors;
mod fallback;
mod methods;
mod mistakes;
mod names;
mod nested;
mod open;
mod quotas;
mod replace;
mod several;
mod stores;
mod support;
mod waiting;
