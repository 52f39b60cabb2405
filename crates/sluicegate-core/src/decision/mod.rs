//! The answer of a store: [`Decision`].
//!
//! It carries data about one request and holds nothing: dropping it neither spends nor gives back.
//! A spend can be given back by its [receipt](Decision::take_receipt), once.

mod answer;
mod outcome;
mod receipts;
mod several;
mod status;
#[cfg(test)]
mod tests;

pub use self::answer::Decision;
pub use self::outcome::Outcome;
pub use self::status::QuotaStatus;
pub use crate::receipt::DecidedBy;
