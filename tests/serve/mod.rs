//! `sluicegate serve` with the proxies that ask it: each in front of a plain service, with clients in front of it.
//!
//! All of 127.0.0.0/8 is this machine, so each client has an address of its own. The proxies' files are those of `examples/serve`.

mod asking_proxies;
mod budgets;
mod crowd;
mod files;
mod hostile;
mod migrated;
mod processes;
mod proxies;
mod rate_limit_service;
mod two_servers;
