//! The distance of a key from its next suspension: [`Strikes`].

use std::sync::Arc;

use super::buckets::AskStore;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::policy::PolicyMode;
use crate::store::{Ask, DecidedBy, Mode, PreparedPolicy, Store};

/// The distance of a key from its next suspension; see [`Suspensions::strikes`](crate::limiter::Suspensions::strikes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Strikes {
    /// The number of refusals that count now. The refusal that suspends the key resets it to 0.
    pub counted: u64,
    /// The number of refusals that suspend the key.
    pub after: u64,
    /// The number of remembered suspensions; each doubles the length of the next one.
    pub suspensions: u64,
}

/// Reads the buckets that count refusals and suspensions. `None` if the policy counts none.
pub(crate) async fn strikes(
    store: &Arc<dyn Store>,
    policy: &PreparedPolicy,
    key: &Key,
    ask_store: AskStore,
) -> Result<Option<Strikes>, StoreError> {
    let is_enforced = policy.policy().mode() == PolicyMode::Enforce;
    let buckets = policy.suspension().filter(|_| is_enforced);
    let Some([strikes, suspensions]) = buckets.and_then(|buckets| buckets.strikes.as_ref()) else {
        return Ok(None);
    };
    // Reports with a cost of 0, because a full bucket would refuse a question.
    let answer = ask_store(
        &**store,
        &[strikes, suspensions].map(|bucket| Ask::new(bucket, key.as_ref(), 0, Mode::Refund)),
    );
    let found = answer.await?;
    if found.decided_by() == DecidedBy::Outage {
        // No store has read the buckets.
        return Err(StoreError::new(StoreErrorKind::Unavailable));
    }
    let of = |place: usize| {
        let mut quotas = found.quotas().iter().filter(move |status| status.policy_index() == place);
        let status = quotas.next()?;
        Some((status.capacity().saturating_sub(status.remaining()), status.capacity()))
    };
    let counts = of(0).zip(of(1));
    Ok(counts.map(|((counted, after), (suspensions, _))| Strikes { counted, after, suspensions }))
}
