//! The store in memory: bounded, exact on many threads, and fair to debtors.

mod bounded;
mod concurrency;
mod floods;
mod inherited;
