//! Decisions are counted once each, whoever asks and however the store is doing.

mod alarms;
mod counts;
mod export;
mod lines;
mod offenders;
mod sources;
