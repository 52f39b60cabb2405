//! Several limiters in one call, in which all spend or none does, and reports about their turns.
//!
//! One call is one decision of the store, so nothing can come between the limiters, and a refusal
//! by one spends nothing from the others. On a Redis Cluster the limits of one request may live on
//! several nodes; the Redis store documents the cost of this.

use std::sync::Arc;

use smallvec::SmallVec;

use super::change::Change;
use super::check::Check;
use super::handle::{FoundPolicy, RateLimiter};
use crate::error::{StoreError, StoreErrorKind};
use crate::few::few;
use crate::key::{AsKey, Key, KeyRef};
use crate::policy::Policy;
#[cfg(feature = "tokio")]
use crate::receipt::Receipt;
#[cfg(feature = "tokio")]
use crate::store::Mode;
use crate::store::{Ask, DecisionFuture, PreparedPolicy};

/// Lists the policies in force of these limiters, in order, for code that shows a decision. The list of a single limiter is shared, and
/// allocates nothing.
///
/// ```
/// use sluicegate_core::limiter::policies;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let login = Policy::gcra("login", "5/min").on(&MemoryStore::new())?;
/// assert_eq!(policies([&login])[0].name(), "login");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[inline]
pub fn policies<'a>(limiters: impl IntoIterator<Item = &'a RateLimiter>) -> Arc<[Arc<Policy>]> {
    let mut limiters = limiters.into_iter();
    match (limiters.next(), limiters.next()) {
        (Some(only), None) => {
            let found = only.find(only.quotas.as_ref(), None);
            Arc::clone(found.prepared().shared_numbers()) as _
        }
        (first, second) => first.into_iter().chain(second).chain(limiters).map(RateLimiter::policy).collect(),
    }
}

/// Decides checks of several limiters together, each with its own key and cost: all spend, or none does.
///
/// The limiters must be on the same store. Checks of one key by one limiter need the sum of their costs. After
/// [`retry_after`](crate::Decision::retry_after) all of them pass, if nobody else spends.
///
/// ```
/// use sluicegate_core::limiter::check_all;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// let by_user = Policy::gcra("user", "100/min").on(&store)?;
/// let by_address = Policy::gcra("address", "2/min").on(&store)?;
///
/// let check = || {
///     let checks = [by_user.check("ada").cost(10), by_address.check("192.0.2.7")];
///     check_all(checks).now().expect("memory answers at once")
/// };
/// assert!(check()?.is_allowed() && check()?.is_allowed());
/// let denied = check()?;
/// assert_eq!(denied.deciding().policy_index(), 1); // the address refused
/// assert_eq!(denied.quotas()[0].remaining(), 80); // so nothing was spent for the user a third time
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NothingAsked`](StoreErrorKind::NothingAsked) without checks, [`ForeignPolicy`](StoreErrorKind::ForeignPolicy) when their limiters
/// are not on one store, and [`TooManyQuotas`](StoreErrorKind::TooManyQuotas) when they have more than 16 quotas together. An outage
/// is [decided by the policies](crate::OnOutage).
///
/// # Cancel safety
/// The store is asked when this is called. Dropping the future neither prevents the decision nor gives back its cost.
pub fn check_all<'a, K: AsKey + 'a>(checks: impl IntoIterator<Item = Check<'a, K>>) -> DecisionFuture {
    let mut checks = checks.into_iter();
    let Some(first) = checks.next() else {
        return DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::NothingAsked)));
    };
    // Almost all calls have one or two limiters, which need no lists.
    let Some(second) = checks.next() else { return first.start() };
    let third = checks.next();
    if third.is_none()
        && let (Some(opened), Some(other)) = (first.find_kept(), second.find_kept())
        && Arc::ptr_eq(first.limiter.store(), second.limiter.store())
    {
        return first.key.with_key(|key| {
            second.key.with_key(|other_key| {
                first.limiter.decide(&[first.ask(opened, key), second.ask(other, other_key)])
            })
        });
    }
    let checks: SmallVec<[_; 4]> = few([first, second].into_iter().chain(third).chain(checks));
    let checks: SmallVec<[_; 4]> = few(checks.iter().map(|check| {
        let (found, key) = check.key.with_key(|key| (check.find(key), key.to_key()));
        (found, key, check)
    }));
    on_one_store(&checks, |check| check.limiter, |opened, key, check| check.ask(opened, key))
}

/// Makes charges and refunds under several limiters of one store in one call.
///
/// For finished work: a cost above the estimate is charged under one limiter and a cost below it given back under another, in one
/// round trip. Receipts lose their units when this is called.
///
/// # Errors
/// As [`Change`], and as [`check_all`] for limiters of different stores.
///
/// # Cancel safety
/// The store is asked when this is called, whether the future is polled or not.
pub fn change_all<'a, K: AsKey + 'a>(changes: impl IntoIterator<Item = Change<'a, K>>) -> DecisionFuture {
    let changes = changes.into_iter();
    let changes: SmallVec<[_; 4]> = few(changes.map(|change| {
        let (found, key) = change
            .key
            .with_key(|key| (change.limiter.find(change.limiter.quotas.as_ref(), Some(key)), key.to_key()));
        (found, key, change)
    }));
    let answer = on_one_store(
        &changes,
        |change| change.limiter,
        |opened, key, change| change.ask(Ask::new(opened, key, change.cost, change.mode)),
    );
    changes.into_iter().for_each(|(.., change)| change.settle());
    answer
}

/// Gives back the spends of these receipts, or their [turns](Mode::Return).
#[cfg(feature = "tokio")]
pub(super) fn report<'a>(
    spends: impl IntoIterator<Item = (&'a RateLimiter, &'a Key, &'a Receipt)>,
    mode: Mode,
) -> DecisionFuture {
    let spends = spends.into_iter();
    let spends: SmallVec<[_; 2]> = few(spends.map(|(limiter, key, receipt)| {
        (limiter.find(limiter.quotas.as_ref(), Some(key.as_ref())), key.clone(), (limiter, receipt))
    }));
    on_one_store(
        &spends,
        |(limiter, _)| limiter,
        |opened, key, (_, receipt)| Ask::new(opened, key, receipt.cost(), mode).of(receipt),
    )
}

/// Decides all of these together, each with its policy and key, if their limiters are on one store.
fn on_one_store<T>(
    all: &[(FoundPolicy<'_>, Key, T)],
    limiter: impl Fn(&T) -> &RateLimiter,
    ask: impl for<'b> Fn(&'b PreparedPolicy, KeyRef<'b>, &'b T) -> Ask<'b>,
) -> DecisionFuture {
    let failed = |kind| DecisionFuture::ready(Err(StoreError::new(kind)));
    let mut limiters = all.iter().map(|(.., of)| limiter(of));
    let Some(first) = limiters.next() else { return failed(StoreErrorKind::NothingAsked) };
    if !limiters.all(|other| Arc::ptr_eq(other.store(), first.store())) {
        return failed(StoreErrorKind::ForeignPolicy);
    }
    let asks = all.iter().map(|(found, key, of)| ask(found.prepared(), key.as_ref(), of));
    first.decide(&few::<[_; 4]>(asks))
}
