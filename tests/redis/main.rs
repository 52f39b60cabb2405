//! The Redis store against real servers: one, a Sentinel group, and a Cluster, all started here.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod access;
mod alarms;
mod bandwidth;
mod budgets;
mod calendar;
mod clocks;
mod concurrency;
mod conformance;
mod deny_cache;
mod durable;
mod first_connection;
#[path = "../fleet/mod.rs"]
mod fleet;
mod foreign;
mod idle;
mod inspect;
mod keys;
mod outages;
mod overrides;
mod own_scripts;
mod permits;
mod pools;
mod probe;
mod promises;
mod replace;
mod rolling;
mod runtimes;
mod scripts;
mod settling;
mod shards;
mod slots;
mod starting;
mod support;
mod suspension;
mod tls;
mod trouble;
mod waiting;
