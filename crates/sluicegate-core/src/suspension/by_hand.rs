//! Suspending and releasing a key by hand.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::buckets::{AskStore, buckets_of, units};
use super::strike::{Cause, tell};
use crate::error::{StoreError, StoreErrorKind};
use crate::few::few;
use crate::key::Key;
use crate::policy::PolicyMode;
use crate::store::{Ask, Mode, PreparedPolicy, Store};

/// Suspends a key for this time from now, whatever its state; or, without a time, ends its suspension and forgets its refusals
/// and earlier suspensions. The store is told the operator, if known.
///
/// # Errors
/// [`StoreErrorKind::NoSuspension`] when the policy has no suspension that is enforced, and when the store gave no answer.
pub(crate) async fn change(
    store: &Arc<dyn Store>,
    policy: &PreparedPolicy,
    key: &Key,
    (lasts, by): (Option<Duration>, Option<&str>),
    ask_store: AskStore,
) -> Result<(), StoreError> {
    let nobody = || StoreError::new(StoreErrorKind::NoSuspension);
    let is_enforced = policy.policy().mode() == PolicyMode::Enforce;
    let buckets = policy.suspension().filter(|_| is_enforced).ok_or_else(nobody)?;
    let suspended = || buckets_of(policy, key.as_ref());
    let answer = {
        let ask = |bucket, cost, mode| Ask::new(bucket, key.as_ref(), cost, mode);
        let mut asks: SmallVec<[Ask<'_>; 4]> = few(suspended().map(|bucket| ask(bucket, 0, Mode::Reset)));
        match lasts {
            Some(lasts) => {
                asks.extend(suspended().take(1).map(|bucket| ask(bucket, units(lasts), Mode::Charge)));
            }
            None => asks.extend(buckets.strikes.iter().flatten().map(|bucket| ask(bucket, 0, Mode::Reset))),
        }
        ask_store(&**store, &asks)
    };
    answer.await.map(drop)?;
    tell(store, policy, key, lasts.unwrap_or_default(), Cause::Hand(by));
    Ok(())
}
