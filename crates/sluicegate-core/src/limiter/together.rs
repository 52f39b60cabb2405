//! Several limiters in one call: all spend or none does; and what becomes of that afterwards.
//!
//! One call is one decision of the store, so nothing can come between the limiters, and a refusal
//! by one costs nothing under the others. On a Redis Cluster the limits of one request may live on
//! several nodes; the Redis store then says what that costs.

use std::sync::Arc;

use smallvec::SmallVec;

use super::handle::RateLimiter;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::receipt::Receipt;
use crate::store::{Ask, DecisionFuture, Mode, PreparedPolicy};

/// The fate of a request that was let through: for [`RateLimiter::change_all`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Change<'a> {
    /// It has cost this many units more; see [`RateLimiter::charge`].
    Charge(u64),
    /// Up to this many units of the receipt are given back; see [`RateLimiter::refund_of`].
    Refund(&'a mut Receipt, u64),
    /// Nothing; the decision says where the key stands.
    Nothing,
}

impl RateLimiter {
    /// Decides a request that several limiters have a say in, each with its own key and cost: all spend, or none.
    ///
    /// The limiters must be on the same store.
    ///
    /// ```
    /// use sluicegate_core::{Key, MemoryStore, Policy, RateLimiter};
    ///
    /// let store = MemoryStore::new();
    /// let by_user = Policy::gcra("user", "100/min").on(&store)?;
    /// let by_address = Policy::gcra("address", "2/min").on(&store)?;
    /// let (ada, address) = (Key::from("ada"), Key::from("192.0.2.7"));
    ///
    /// let check = || RateLimiter::check_all([(&by_user, &ada, 10), (&by_address, &address, 1)])
    ///     .now().expect("memory answers at once");
    /// assert!(check()?.is_allowed() && check()?.is_allowed());
    /// let denied = check()?;
    /// assert_eq!(denied.deciding().policy_index(), 1); // the address refused
    /// assert_eq!(denied.quotas()[0].remaining(), 80); // so the user has not paid a third time
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NothingAsked`](StoreErrorKind::NothingAsked) without limiters,
    /// [`ForeignPolicy`](StoreErrorKind::ForeignPolicy) when they are not on one store, and
    /// [`TooManyQuotas`](StoreErrorKind::TooManyQuotas) when they have more than 16 quotas
    /// together. An outage is [decided by the policies](crate::OnOutage).
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    pub fn check_all<'a>(checks: impl IntoIterator<Item = (&'a Self, &'a Key, u64)>) -> DecisionFuture {
        Self::decide_all(checks.into_iter().map(|(limiter, key, cost)| (limiter, key, cost, None)))
    }

    /// Decides several limiters together. Without a mode, a policy spends, or waits if it is one that waits.
    ///
    /// # Errors
    /// As [`check_all`](Self::check_all). A mode that reports, such as [`Mode::Charge`], makes an outage an error.
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    pub fn decide_all<'a>(
        asks: impl IntoIterator<Item = (&'a Self, &'a Key, u64, Option<Mode>)>,
    ) -> DecisionFuture {
        let mut asks = asks.into_iter();
        let Some(first @ (limiter, key, cost, mode)) = asks.next() else {
            return DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::NothingAsked)));
        };
        // Almost always it is one limiter, or two; they need no lists.
        let Some(second @ (other, other_key, other_cost, other_mode)) = asks.next() else {
            return limiter.with_opened(|opened| limiter.decide(&[ask(opened, key, cost, mode)]));
        };
        let third = asks.next();
        if third.is_none()
            && let (Some(opened), Some(other_opened)) = (limiter.kept(), other.kept())
            && Arc::ptr_eq(limiter.store(), other.store())
        {
            let second = ask(other_opened, other_key, other_cost, other_mode);
            return limiter.decide(&[ask(opened, key, cost, mode), second]);
        }
        let asks: SmallVec<[_; 4]> = [first, second]
            .into_iter()
            .chain(third)
            .chain(asks)
            .map(|(limiter, key, cost, mode)| (limiter, limiter.opened(), key, cost, mode))
            .collect();
        let first = match on_one_store(asks.iter().map(|(limiter, ..)| *limiter)) {
            Ok(first) => first,
            Err(error) => return DecisionFuture::ready(Err(error)),
        };
        let asks: SmallVec<[Ask<'_>; 4]> = asks
            .iter()
            .map(|(_, opened, key, cost, mode)| ask(opened.as_opened(), key, *cost, *mode))
            .collect();
        first.decide(&asks)
    }

    /// Charges and refunds under several limiters of one store, together in one call.
    ///
    /// For work that has been done: what it cost beyond the estimate is charged under one limiter
    /// and given back under another, in one round trip. Receipts lose their units when this is
    /// called.
    ///
    /// # Errors
    /// As [`charge`](Self::charge) and [`refund_of`](Self::refund_of); and as
    /// [`check_all`](Self::check_all) for limiters that do not belong together.
    ///
    /// # Cancel safety
    /// The store is told when this is called, whether the future is polled or not.
    pub fn change_all<'a>(
        changes: impl IntoIterator<Item = (&'a Self, &'a Key, Change<'a>)>,
    ) -> DecisionFuture {
        let mut changes: SmallVec<[_; 4]> = changes
            .into_iter()
            .map(|(limiter, key, change)| {
                let cost = match &change {
                    Change::Charge(cost) => *cost,
                    Change::Refund(receipt, cost) => receipt.cost().min(*cost),
                    Change::Nothing => 0,
                };
                (limiter, limiter.newest(), key, change, cost)
            })
            .collect();
        let first = match on_one_store(changes.iter().map(|(limiter, ..)| *limiter)) {
            Ok(first) => first,
            Err(error) => return DecisionFuture::ready(Err(error)),
        };
        let asks: SmallVec<[Ask<'_>; 4]> = changes
            .iter()
            .map(|(_, opened, key, change, cost)| {
                let ask = |mode| Ask::new(opened.as_opened(), key.as_ref(), *cost, mode);
                match change {
                    Change::Charge(_) => ask(Mode::Charge),
                    Change::Refund(receipt, _) => ask(Mode::Refund).of(receipt),
                    Change::Nothing => ask(Mode::Refund),
                }
            })
            .collect();
        let verdict = first.decide(&asks);
        drop(asks);
        for (.., change, cost) in &mut changes {
            if let Change::Refund(receipt, _) = change {
                receipt.spend(*cost);
            }
        }
        verdict
    }

    /// Reports what has become of turns: [given up](Mode::Return), or [come](Mode::Depart).
    #[cfg(feature = "tokio")]
    pub(crate) fn report<'a>(
        turns: impl IntoIterator<Item = (&'a Self, &'a Key, &'a Receipt)>,
        mode: Mode,
    ) -> DecisionFuture {
        let turns: SmallVec<[_; 2]> = turns
            .into_iter()
            .map(|(limiter, key, receipt)| (limiter.newest(), limiter, key, receipt))
            .collect();
        let asks: SmallVec<[Ask<'_>; 2]> = turns
            .iter()
            .map(|(opened, _, key, receipt)| {
                Ask::new(opened.as_opened(), key.as_ref(), receipt.cost(), mode).of(receipt)
            })
            .collect();
        match on_one_store(turns.iter().map(|(_, limiter, ..)| *limiter)) {
            Ok(first) => first.decide(&asks),
            Err(error) => DecisionFuture::ready(Err(error)),
        }
    }
}

/// In this mode, or as the policy spends.
#[inline]
fn ask<'a>(opened: &'a PreparedPolicy, key: &'a Key, cost: u64, mode: Option<Mode>) -> Ask<'a> {
    Ask::new(opened, key.as_ref(), cost, mode.unwrap_or_else(|| opened.spends()))
}

/// The first of them, if all are on one store.
fn on_one_store<'a>(
    mut limiters: impl Iterator<Item = &'a RateLimiter>,
) -> Result<&'a RateLimiter, StoreError> {
    let first = limiters.next().ok_or_else(|| StoreError::new(StoreErrorKind::NothingAsked))?;
    if !limiters.all(|other| Arc::ptr_eq(other.store(), first.store())) {
        return Err(StoreError::new(StoreErrorKind::ForeignPolicy));
    }
    Ok(first)
}
