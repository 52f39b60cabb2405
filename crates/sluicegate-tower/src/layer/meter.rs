//! Charging for what is known only while a request is served: [`Meter`].

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;
use sluicegate_core::{Decision, Key, Mode, Policy, RateLimiter, StoreError};

use crate::layer::asks::Asks;
use crate::layer::shared::Shared;
use crate::layer::trial::Trial;

/// What a request has spent, for handlers that learn its cost while they serve it: tokens, bytes, rows.
///
/// In the extensions of requests behind a layer with [`meter`](crate::RateLimitLayerBuilder::meter). Cheap to clone, and
/// of use after the handler has returned: in a task, in a body that is still streamed. Clones share one account.
///
/// A meter is about all limits that its request was checked against; [`of`](Self::of) picks one of them. Limits that
/// did not apply, and those that nobody could decide in an outage, are not among them. A meter of no limit does nothing.
/// Policies in shadow are charged as well, and answer nothing.
///
/// Each call reaches the store at once; what it returns says where the request's keys stand then. Dropping that undoes
/// nothing.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::Meter;
///
/// async fn complete(request: Request<String>) -> Result<String, sluicegate_core::StoreError> {
///     let meter = request.extensions().get::<Meter>().cloned().unwrap_or_default();
///     let answer = request.body().to_uppercase(); // at a cost that is known now
///     // The limit's cost was an estimate: more is charged, or the rest is given back.
///     meter.of("tokens").settle(answer.len() as u64).await?;
///     Ok(answer)
/// }
/// ```
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<[Arc<Account>]>>);

/// What a request has spent of one limiter.
struct Account {
    limiter: RateLimiter,
    policy: Arc<Policy>,
    /// The name of the limit, if it has one of its own.
    name: Option<Arc<str>>,
    key: Key,
    spent_us: Option<u64>,
    spent: AtomicU64,
    is_shadow: bool,
}

/// How an account changes.
#[derive(Clone, Copy)]
enum Change {
    Charge(u64),
    Refund(u64),
}

impl Meter {
    /// The part of this meter that is about the limit of this name: that of [`Limit::named`](crate::Limit::named), or
    /// of its policy. A meter of no limit if there is none.
    #[must_use]
    pub fn of(&self, name: &str) -> Self {
        let is_called = |account: &&Arc<Account>| match &account.name {
            Some(own) => **own == *name || account.policy.name() == name,
            None => account.policy.name() == name,
        };
        Self::from_accounts(self.accounts().iter().filter(is_called).cloned().collect())
    }

    /// Whether this meter is about no limit at all.
    pub fn is_empty(&self) -> bool {
        self.accounts().is_empty()
    }

    /// Units that the request has spent so far, of the limit that it has spent most of.
    pub fn spent(&self) -> u64 {
        // Relaxed: an account is one number and guards nothing else.
        self.accounts().iter().map(|account| account.spent.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Spends `units` more of each limit, whether they fit or not: what does not fit is a debt that later requests wait
    /// for. `None` if this meter is about no limit that is enforced.
    ///
    /// # Errors
    /// When the store gave no answer; the account is then as before, so that the call may be repeated.
    pub fn charge(
        &self,
        units: u64,
    ) -> impl Future<Output = Result<Option<Decision>, StoreError>> + Send + use<> {
        self.change(self.accounts().iter().map(|account| account.charge(units)).collect())
    }

    /// Gives `units` back to each limit, at most what the request has spent of it, and as far as they still count.
    /// `None` if this meter is about no limit.
    ///
    /// # Errors
    /// When the store gave no answer. Whether they were given back is then unknown, and they will not be once more.
    pub fn refund(
        &self,
        units: u64,
    ) -> impl Future<Output = Result<Option<Decision>, StoreError>> + Send + use<> {
        self.change(self.accounts().iter().map(|account| account.refund(units)).collect())
    }

    /// Makes `actual` what the request has spent in all: the difference to what it has spent so far, which is the
    /// limit's cost at first, is charged or given back. `None` if this meter is about no limit.
    ///
    /// # Errors
    /// As [`charge`](Self::charge) and [`refund`](Self::refund).
    pub fn settle(
        &self,
        actual: u64,
    ) -> impl Future<Output = Result<Option<Decision>, StoreError>> + Send + use<> {
        self.change(self.accounts().iter().map(|account| account.settle(actual)).collect())
    }

    /// What a request is about to spend, in the order of its asks.
    pub(crate) fn of_request<R>(
        shared: &Shared<R>,
        asks: &Asks,
        decision: Option<&Decision>,
        trials: &[Arc<Trial>],
    ) -> Self {
        let plan = shared.plan();
        let account = |slot: usize, key: &Key, (spent, spent_us): (u64, Option<u64>), is_shadow: bool| {
            Arc::new(Account {
                limiter: shared.slots[slot].limiter.clone(),
                policy: Arc::clone(&plan.policies[slot]),
                name: shared.limits[shared.slots[slot].limit].name.clone(),
                key: key.clone(),
                spent_us,
                spent: AtomicU64::new(spent),
                is_shadow,
            })
        };
        let spent_us = decision.map(Decision::spent_us);
        let asked = asks.iter().map(|asked| account(asked.slot, &asked.key, (asked.cost, spent_us), false));
        let tried = trials.iter().map(|trial| account(trial.slot, &trial.key, trial.spent(), true));
        Self::from_accounts(asked.chain(tried).collect())
    }

    /// Puts it into the extensions of a request, together with what layers further out have put there.
    pub(crate) fn enter(&self, extensions: &mut Extensions) {
        let outer = extensions.remove::<Self>().unwrap_or_default();
        let both = match (self.accounts(), outer.accounts()) {
            (_, []) => self.clone(),
            ([], _) => outer,
            (own, outer) => Self::from_accounts(own.iter().chain(outer).cloned().collect()),
        };
        extensions.insert(both);
    }

    /// Takes all that was spent out of the account in this place, to be given back.
    pub(crate) fn take(&self, index: usize) -> u64 {
        self.accounts().get(index).map_or(0, |account| account.spent.swap(0, Ordering::Relaxed))
    }

    fn from_accounts(accounts: Vec<Arc<Account>>) -> Self {
        Self(if accounts.is_empty() { None } else { Some(accounts.into()) })
    }

    fn accounts(&self) -> &[Arc<Account>] {
        self.0.as_deref().unwrap_or_default()
    }

    fn change(
        &self,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<Option<Decision>, StoreError>> + Send + use<> {
        let all = self.accounts().iter().cloned().zip(changes);
        let (shadows, enforced): (Vec<_>, Vec<_>) = all.partition(|(account, _)| account.is_shadow);
        for one in &shadows {
            // The store begins with it at once; nobody waits for its answer.
            drop(RateLimiter::decide_all([ask(one)]));
        }
        let verdict = (!enforced.is_empty()).then(|| RateLimiter::decide_all(enforced.iter().map(ask)));
        // Those that decide now, which may have replaced those that the request was checked against.
        let policies = enforced.iter().map(|(account, _)| account.limiter.policy()).collect();
        async move {
            let Some(verdict) = verdict else { return Ok(None) };
            match verdict.await {
                Ok(mut decision) => {
                    decision.set_policies(policies);
                    Ok(Some(decision))
                }
                Err(error) => {
                    for (account, change) in enforced {
                        // A refund that was given and is given again would let more pass than the policy allows.
                        if let Change::Charge(units) = change {
                            account.refund(units);
                        }
                    }
                    Err(error)
                }
            }
        }
    }
}

fn ask((account, change): &(Arc<Account>, Change)) -> (&RateLimiter, &Key, u64, Option<Mode>) {
    let (units, mode) = match *change {
        Change::Charge(units) => (units, Mode::Charge),
        Change::Refund(units) => (units, Mode::Refund { spent_us: account.spent_us }),
    };
    (&account.limiter, &account.key, units, Some(mode))
}

impl Account {
    fn charge(&self, units: u64) -> Change {
        let more = |spent: u64| Some(spent.saturating_add(units));
        // Relaxed, here and below: an account is one number and guards nothing else.
        let _ = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        Change::Charge(units)
    }

    fn refund(&self, units: u64) -> Change {
        let less = |spent: u64| Some(spent.saturating_sub(units));
        let before = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        Change::Refund(units.min(before.unwrap_or(0)))
    }

    fn settle(&self, actual: u64) -> Change {
        let before = self.spent.swap(actual, Ordering::Relaxed);
        match actual.checked_sub(before) {
            Some(more) => Change::Charge(more),
            None => Change::Refund(before - actual),
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts = self.accounts().iter();
        f.debug_map()
            .entries(accounts.map(|account| (account.policy.name(), account.spent.load(Ordering::Relaxed))))
            .finish()
    }
}
