//! Operating a service, over real sockets: what is counted, and what the person on call sees and does.

mod alarms;
mod alerts;
pub(crate) mod browser;
mod fleet;
mod monitoring;
mod operator;
mod replay;
mod scrape;
mod status;
mod subjects;
mod traces;
