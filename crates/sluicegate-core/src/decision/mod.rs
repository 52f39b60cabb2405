//! The answer of a store: [`Decision`].
//!
//! It carries data about one request and holds nothing: dropping it neither spends nor gives back.
//! A spend can be given back by its [receipt](Decision::take_receipt), once.

mod answer;
mod status;
#[cfg(test)]
mod tests;

pub use self::answer::{Decision, ShortAnswer};
pub use self::status::{Outcome, QuotaStatus};
pub use crate::receipt::DecidedBy;
