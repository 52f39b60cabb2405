//! What a policy does when it is exceeded, when its store is away, and when a table is full.

use std::time::Duration;

/// What happens to a request that exceeds its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnExceeded {
    /// It is refused.
    Deny,
    /// It waits its turn, first come, first served, if that comes within `longest`; otherwise it is refused at once.
    Wait {
        /// The longest wait.
        longest: Duration,
    },
}

/// What happens to a request while the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnOutage {
    /// This process decides alone, with its share of the quotas, if the store is a `Resilient` one; with any other
    /// store as [`Allow`](Self::Allow).
    #[default]
    Local,
    /// It is let through, and nobody counts it.
    Allow,
    /// It is refused, with 503 where it is an HTTP request.
    Deny,
}

/// What becomes of the least indebted key of a store of fixed size when there is no room for another one in debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFull {
    /// It is forgotten, and starts afresh: whoever comes is served, and a flood may free a debtor that owes less.
    #[default]
    Forget,
    /// New keys inherit what it owes, where they share its part of the table: no flood frees a debtor, for limits where
    /// forgetting is worse than refusing.
    ///
    /// The price: in a flood, new keys that have spent nothing start with a debt, and may be refused until it has
    /// drained. That takes no longer than the heaviest debt that had to make room; one window more where windows begin
    /// with a key's first unit.
    Inherit,
}
