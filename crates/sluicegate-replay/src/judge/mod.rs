//! From requests in their order to the decisions of each rule: [`LogEvaluation`].
//!
//! ```text
//! requests --> order, by seconds --> decide --> states --> second, one by one or together --> evaluator, a store on the log's clock
//!                                       |                                                          |
//!                                       +--> keys, rows in slots                                   +--> figures, and events for suggestions
//! ```

mod decide;
mod evaluator;
mod figures;
mod keys;
mod order;
mod states;
mod suggest;
mod unusual;

pub(crate) use self::decide::LogEvaluation;
pub(crate) use self::figures::MINUTE_US;
pub use self::figures::{Compared, Distribution, RejectedKey, RuleFigures, RuleMinute, Worst};
pub(crate) use self::order::Order;

#[cfg(test)]
mod random;
