//! Operating a service, over real sockets: what is counted, and what the person on call sees and does.
#![expect(clippy::unwrap_used, reason = "what a test unwraps in vain is what it reports")]

mod alarms;
mod alerts;
mod browser;
mod fleet;
mod monitoring;
mod operator;
mod replay;
mod scrape;
mod status;
mod subjects;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "what other tests need, too")]
mod support;
mod traces;
