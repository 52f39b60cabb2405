//! The reasons why a policy may not be leased: [`Unleased`].

use std::fmt;

/// The reason why requests of a policy pass through a [`Leased`](super::Leased) store to the inner store.
///
/// It is not an error: the inner store decides such a policy exactly, with a call for each request.
/// [`Leased::unleased`](super::Leased) lists open policies of this kind.
///
/// | reason | to have it leased |
/// |---|---|
/// | [`Log`](Self::Log) | use `sliding-counter`, or GCRA, if the moment of each unit does not matter |
/// | [`Queue`](Self::Queue), [`Waits`](Self::Waits) | refuse requests instead of delaying them |
/// | [`Suspends`](Self::Suspends) | suspend by a separate policy, beside a leased one |
/// | [`TooSmall`](Self::TooSmall) | raise the share or the quota; a small quota gains little by a lease |
/// | [`TooManyQuotas`](Self::TooManyQuotas) | split them into two policies |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unleased {
    /// A sliding log knows the moment of each unit, and a leased unit has none until it is spent.
    Log,
    /// A leaky bucket that shapes gives each request its turn.
    Queue,
    /// An unknown key [starts](sluicegate_core::Quota::starting_with) with less than a burst, and an instance that spends ahead does not
    /// know whether the key is unknown again.
    Starts,
    /// Its requests wait for their turn.
    Waits,
    /// It suspends keys by their refusals, which the inner store counts.
    Suspends,
    /// The [share](super::Batch::share) of its smallest quota is less than two units.
    TooSmall,
    /// It has more than half of [`MAX_QUOTAS`](sluicegate_core::policy::MAX_QUOTAS): a lease is requested beside a spend, and both are
    /// decided together.
    TooManyQuotas,
}

impl fmt::Display for Unleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "a sliding log is not leased",
            Self::Queue => "a queue is not leased",
            Self::Starts => "a policy whose keys start with less than a burst is not leased",
            Self::Waits => "a policy whose requests wait is not leased",
            Self::Suspends => "a policy that suspends keys is not leased",
            Self::TooSmall => "its share of the smallest quota is less than two units",
            Self::TooManyQuotas => "a policy of more than 8 quotas is not leased",
        })
    }
}
