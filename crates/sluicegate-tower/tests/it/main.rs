//! What the crate promises, tried from outside: one binary, a module per idea. Time moves only by hand, or is tokio's
//! paused time.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod agreement;
mod bodies;
mod combinations;
mod costs;
mod crowd;
mod exempt;
mod exempt_async;
mod floods;
mod giving_back;
mod header_modes;
mod headers;
mod hidden;
mod inputs;
mod keys;
mod leaving;
mod log;
mod lookups;
mod meter;
mod meter_fields;
mod meter_reach;
mod missing_keys;
mod no_peer;
mod queue;
mod readiness;
mod refunds;
mod refusals;
mod reloads;
mod remote;
mod settling;
mod shadow;
mod spread;
mod stacked;
mod stores;
#[path = "../strict/mod.rs"]
mod strict;
mod support;
mod tiers;
mod upstream;
mod waiting;
