//! From requests in their order to the decisions of each rule: [`Decider`].
//!
//! ```text
//! requests --> order, by seconds --> decide --> books --> second, one by one or together --> court, a store on the log's clock
//!                                       |                                                      |
//!                                       +--> keys, rows in slots                               +--> figures, and events for suggestions
//! ```

mod alone;
mod books;
mod court;
mod decide;
mod figures;
mod keys;
mod order;
#[cfg(test)]
mod random;
mod second;
mod slots;
mod suggest;
mod trial;

pub(crate) use self::decide::Decider;
pub(crate) use self::figures::MINUTE_US;
pub use self::figures::{Compared, Distribution, RejectedKey, RuleFigures, RuleMinute, Worst};
pub(crate) use self::order::Order;
