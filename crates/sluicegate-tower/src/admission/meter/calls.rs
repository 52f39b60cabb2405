//! The calls of stores for a change of a meter: [`MeterCall`].
//!
//! One call changes the accounts of one store, as far as their quotas fit: layers around each other may have several stores, and an
//! account may have many receipts.

use std::sync::Arc;

use sluicegate_core::limiter::{Change, change_all, policies};
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, Key, Policy};
use smallvec::SmallVec;

use super::account::{MeterAccount, MeterEntry};
use crate::admission::restate::Now;

/// A call that was made.
pub(super) struct MeterCall {
    /// The number of accounts whose statuses are in the answer. Their asks come first.
    pub(super) accounts: usize,
    /// The current policies of these accounts, which may have replaced those of the decision.
    pub(super) policies: Arc<[Arc<Policy>]>,
    /// The answer, which the accounts note even if this is dropped.
    pub(super) answer: DecisionFuture,
}

/// A call that is still to be made.
#[derive(Default)]
struct CallDraft<'a> {
    /// The accounts that the first changes belong to, with their charges.
    accounts: Vec<(&'a Arc<MeterAccount>, u64)>,
    changes: Vec<Change<'a, &'a Key>>,
    last: Option<&'a Arc<MeterAccount>>,
    quotas: usize,
}

impl MeterCall {
    /// Makes the calls for these changes, each of an account.
    pub(super) fn make<'a>(
        entries: impl Iterator<Item = (&'a Arc<MeterAccount>, &'a mut MeterEntry)>,
    ) -> SmallVec<[Self; 1]> {
        let (mut calls, mut more) = (SmallVec::<[CallDraft<'_>; 1]>::new(), Vec::new());
        for (account, entry) in entries {
            let charged = entry.charged();
            let mut changes = account.changes(entry).into_iter();
            if let Some(first) = changes.next() {
                CallDraft::with_room(&mut calls, account).add(account, first).push((account, charged));
            }
            more.extend(changes.map(|change| (account, change)));
        }
        let main = calls.len();
        for (account, change) in more {
            CallDraft::with_room(&mut calls, account).add(account, change);
        }
        // Calls for the rest are made first, so that the statuses of the accounts include them.
        calls.rotate_left(main);
        calls.into_iter().map(CallDraft::start).collect()
    }
}

impl<'a> CallDraft<'a> {
    /// The call on the store of this account that has room for another change of it; a new one if there is none.
    fn with_room<'b>(calls: &'b mut SmallVec<[Self; 1]>, account: &MeterAccount) -> &'b mut Self {
        let has_room = |call: &Self| {
            let is_there =
                |last: &Arc<MeterAccount>| Arc::ptr_eq(last.limiter.store(), account.limiter.store());
            call.last.is_some_and(is_there) && call.quotas + quotas(account) <= MAX_QUOTAS
        };
        let place = calls.iter().position(has_room).unwrap_or_else(|| {
            calls.push(Self::default());
            calls.len() - 1
        });
        &mut calls[place]
    }

    /// Adds a change; returns the accounts, to which that of a first change is added.
    fn add(
        &mut self,
        account: &'a Arc<MeterAccount>,
        change: Change<'a, &'a Key>,
    ) -> &mut Vec<(&'a Arc<MeterAccount>, u64)> {
        self.changes.push(change);
        self.quotas += quotas(account);
        self.last = Some(account);
        &mut self.accounts
    }

    fn start(self) -> MeterCall {
        let Self { accounts, changes, .. } = self;
        let answer = change_all(changes);
        let policies = policies(accounts.iter().map(|(account, _)| &account.limiter));
        let known = Arc::clone(&policies);
        let noted: SmallVec<[_; 1]> =
            accounts.iter().map(|(account, charged)| (Arc::clone(account), *charged)).collect();
        let answer = answer.map_even_if_dropped(move |mut answer| {
            match &mut answer {
                Ok(decision) => take_note(&noted, &known, decision),
                // A refund that is given twice would admit more than the policy allows.
                Err(_) => noted.iter().for_each(|(account, charged)| account.forget(*charged)),
            }
            answer
        });
        MeterCall { accounts: accounts.len(), policies, answer }
    }
}

fn quotas(account: &MeterAccount) -> usize {
    account.limiter.with_policy(Policy::buckets)
}

/// Records the answer to a change: the receipts of charges, and the statuses of the keys.
fn take_note(accounts: &[(Arc<MeterAccount>, u64)], policies: &[Arc<Policy>], decision: &mut Decision) {
    for (index, ((account, charged), policy)) in accounts.iter().zip(policies).enumerate() {
        let receipt = decision.take_receipt(index);
        let mut owed = account.answered(*charged, receipt, Now::of(decision, index, policy));
        if owed.gives_back() {
            drop(MeterCall::make([(account, &mut owed)].into_iter()));
        }
    }
}
