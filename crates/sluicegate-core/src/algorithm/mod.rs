//! The algorithms, as pure functions from state, time and cost to new state. For authors of stores.
//!
//! Other users name an [`Algorithm`] in a policy and do not need this module. A store keeps one
//! [`State`] (two integers) per key and quota, and asks the quota's [`Rule`] three things: when
//! would this cost pass ([`Rule::slot`]), what is the state after it ([`Rule::spend`]), and what is
//! left ([`Rule::remaining`]). The sliding log, whose state is a list, is the one exception; see
//! [`SlidingLog`].
//!
//! All arithmetic is on integers below 2^53, so that the same rules run as Lua inside Redis with
//! the same results.
//!
//! # Invariants
//! - *No floats, no rounding of state.* Only numbers that are shown are rounded: waits up, remainders down.
//! - *A refusal changes nothing.* Only a cost that passes, or is charged, makes a new state.
//! - *Rest is forgetting.* From [`State::until_us`] on, a state decides as [`State::REST`] does, so
//!   a store may drop it then, and expiry needs no sweep. If newcomers [start](Starting) with less than a burst, this moment is
//!   later than the moment at which the bucket is full.
//! - *Time may stand still or step back.* An earlier `now` makes a key look fuller, never emptier. A call that spends nothing changes nothing,
//!   even for a key at rest: at an earlier `now` the key may not be at rest.
//! - *All quotas up to a limit and burst of 10^6, with a period of 1 ms to 30 days, are exact.*
//!   A quota that is not exact is refused when the policy is built, with the reason.
//!
//! ```
//! use sluicegate_core::algorithm::{Rule, State};
//! use sluicegate_core::{Algorithm, Quota};
//!
//! let rule = Rule::new(Algorithm::Gcra, Quota::per_second(2))?;
//! let mut state = State::REST;
//! for _ in 0..2 {
//!     assert_eq!(rule.slot(state, 0, 1).opens_us, 0); // passes now
//!     state = rule.spend(state, 0, 0, 1);
//! }
//! assert_eq!(rule.slot(state, 0, 1).opens_us, 500_000); // would pass in half a second
//! assert_eq!(rule.remaining(state, 0), 0);
//! # Ok::<(), sluicegate_core::ConfigError>(())
//! ```
#![warn(clippy::arithmetic_side_effects)]

mod fixed_window;
mod gcra;
mod rule;
mod shape;
mod sliding_counter;
mod sliding_log;
mod starting;

pub use self::fixed_window::FixedWindow;
pub use self::gcra::Gcra;
use self::rule::Checked;
pub use self::rule::Rule;
pub use self::shape::{Balance, Inherit, Numbers, Units};
pub(crate) use self::shape::{Looked, SpendState};
pub use self::sliding_counter::SlidingCounter;
pub use self::sliding_log::SlidingLog;
pub use self::starting::{
    CalendarWindow, InCalendar, Starting, StartingCalendar, StartingGcra, StartingWindow,
};
pub use crate::quota::{Algorithm, Anchor, Drain, Refill};

/// A moment that never comes: no wait makes this cost fit.
pub const NEVER: u64 = u64::MAX;

/// The longest period, and the longest time in which a burst may refill: ten years of 365 days.
pub const LONGEST_US: u64 = 315_360_000_000_000;

/// How far into the future a debt can reach before it saturates: thirty years.
const DEBT_HORIZON_US: u64 = 3 * LONGEST_US;

/// Products of cost and time stay at or below this. Twice as much is still exact in a double, which leaves room for a debt.
const EXACT: u64 = 1 << 52;

/// The state of one key under one quota: the moment it is back at rest and a second number.
///
/// Every rule can rebuild its state from these two, and every state says in the same way how long it is needed:
/// at `until_us` a store may forget it without changing any later decision. Only a rule knows when a bucket is full
/// ([`Rule::reset_after_us`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The moment at which the key is back at rest, in microseconds of the store's clock; 0 for a key at rest. If newcomers
    /// [start](Starting) with less than a burst, the moment at which the key is a newcomer again.
    pub until_us: u64,
    /// A second number of the rule: a remainder, a count, two counts.
    pub aux: u64,
}

impl State {
    /// The state of a key that was never seen, or whose last state has ended.
    pub const REST: Self = Self { until_us: 0, aux: 0 };

    /// A state as it was stored.
    pub const fn new(until_us: u64, aux: u64) -> Self {
        Self { until_us, aux }
    }

    /// Set in `aux` when a turn was reserved ahead of time: until then, no request may overtake it.
    const CLOSED: u64 = 1 << 63;

    fn is_closed(self) -> bool {
        self.aux & Self::CLOSED != 0
    }

    fn count(self) -> u64 {
        self.aux & !Self::CLOSED
    }
}

/// The moment at which a cost could pass if nothing else arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The moment at which the cost is admitted: the current time if it passes now, [`NEVER`] if it can never fit.
    pub opens_us: u64,
    /// The moment at which the cost may proceed: later than `opens_us` only in a leaky bucket that shapes.
    pub departs_us: u64,
}

impl Slot {
    /// A cost that is admitted at this moment and may proceed at once.
    pub const fn at(us: u64) -> Self {
        Self { opens_us: us, departs_us: us }
    }
}

/// The state before and after a spend: enough to give exactly that spend back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores put it together")]
pub struct Spent {
    /// The moment at which the spend began to count, in microseconds of the store's clock.
    pub at_us: u64,
    /// Spent units that took effect and have not been given back since.
    pub cost: u64,
    /// The level before the spend ([`Rule::level`]).
    pub found: u64,
    /// The part of the level that [`Rule::give_back`] has given back to the bucket since the spend.
    pub given_since: u64,
    /// The state before.
    pub before: State,
    /// The state after.
    pub after: State,
}

#[cfg(test)]
mod tests;
