//! Decisions are counted once each, whoever asks and however the store is doing.

mod alarms;
mod budgets;
mod counts;
mod export;
mod ledger;
mod lines;
mod offenders;
mod sources;
