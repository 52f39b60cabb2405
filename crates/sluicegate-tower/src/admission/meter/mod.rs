//! Charges for costs that are known only while a request is served: [`Meter`].

mod account;
mod calls;
mod standing;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::Extensions;
use sluicegate_core::{Decision, Key, Policy, RateLimiter, StoreError};
use smallvec::SmallVec;

use self::account::{LockedAccount, MeterAccount, MeterEntry};
use self::calls::MeterCall;
pub use self::standing::Standing;
use crate::admission::asks::RequestAsks;
use crate::admission::restate::Now;
use crate::admission::shadow::Trial;
use crate::limits::plan::LimitPlan;
use crate::respond::decided::Decided;

/// The spend of a request, for handlers that learn its cost while they serve it: tokens, bytes, rows.
///
/// Requests inside a layer with [`meter`](crate::limits::LimitsBuilder::meter) have it in their extensions. It is cheap to clone,
/// and usable after the handler has returned: in a task, in a body that is still streaming. Clones share one account.
///
/// A meter covers all limits that its request was checked against; [`of`](Self::of) picks one of them. It leaves out limits
/// that did not apply, and limits that could not be decided in an outage. A meter without limits does nothing.
/// Policies in shadow are charged as well, but are not part of the answer. If layers around each other are on several stores, each store has
/// a call of its own: after an error, only the accounts on the stores that did not answer are as before.
///
/// Each call reaches the store at once; its [`Standing`] has the units left then. Dropping the returned future undoes
/// nothing. The fields of the response show the new state if the store has answered before the response comes: memory answers
/// at once, other stores when the future is awaited.
///
/// ```
/// use http::Request;
/// use sluicegate_tower::Meter;
///
/// async fn complete(request: Request<String>) -> Result<String, sluicegate_core::StoreError> {
///     let meter = request.extensions().get::<Meter>().cloned().unwrap_or_default();
///     let answer = request.body().to_uppercase(); // its cost is known now
///     // The limit's cost was an estimate: more is charged, or the rest is given back.
///     meter.of("tokens").settle(answer.len() as u64).await?;
///     Ok(answer)
/// }
/// ```
///
/// # Which call
/// | call | for | example |
/// |---|---|---|
/// | [`settle`](Self::settle) | an estimate was charged, the true cost is known | tokens of a model's answer |
/// | [`charge`](Self::charge) | additional work | each further page of a report |
/// | [`refund`](Self::refund) | less work | an upstream that failed halfway |
///
/// # When not to use it
/// If the cost follows from the request, use [`Limit::cost_fn`](crate::Limit::cost_fn); if it
/// follows from the response, [`Limit::refund_if`](crate::Limit::refund_if) or [`Limit::settle`](crate::Limit::settle). They need
/// no handler that knows limits.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<[Arc<MeterAccount>]>>);

impl Meter {
    /// The part of this meter for the limit of this name: the name set by [`Limit::named`](crate::Limit::named), or
    /// that of its policy. Without such a limit, the meter covers no limit.
    #[must_use]
    pub fn of(&self, name: &str) -> Self {
        let accounts = self.accounts().iter().filter(|account| account.is_called(name));
        Self::from_accounts(accounts.cloned().collect())
    }

    /// Whether this meter covers no limit.
    pub fn is_empty(&self) -> bool {
        self.accounts().is_empty()
    }

    /// The units that the request has spent so far, on the limit with the highest spend.
    ///
    /// Shadow policies count as well. 0 for a meter without limits.
    pub fn spent(&self) -> u64 {
        self.accounts().iter().map(|account| account.spent()).max().unwrap_or(0)
    }

    /// Spends `units` more of each limit, whether they fit or not: units that do not fit are a debt, and later requests wait until it
    /// is paid off.
    ///
    /// # Errors
    /// When the store gave no answer; the account is then as before, so that the call may be repeated.
    ///
    /// # Cancel safety
    /// The store is asked by this call, not by the first poll: a dropped future still takes effect. The fields of the
    /// response show it only if the future was awaited, or the store answered at once, as memory does.
    pub fn charge(&self, units: u64) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        self.change(self.change_each(|_, account| account.charge(units)))
    }

    /// Gives `units` back to each limit: at most the units that the request has spent and that still count.
    ///
    /// # Errors
    /// When the store gave no answer. It is then unknown whether the units were given back, and they are not given back again.
    ///
    /// # Cancel safety
    /// The store is asked by this call, not by the first poll: a dropped future still takes effect. The fields of the
    /// response show it only if the future was awaited, or the store answered at once, as memory does.
    pub fn refund(&self, units: u64) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        self.change(self.change_each(|_, account| account.refund(units)))
    }

    /// Sets the total spend of the request to `actual`: charges or gives back the difference to its spend so far, which at first is
    /// the limit's cost.
    ///
    /// # Errors
    /// As [`charge`](Self::charge) and [`refund`](Self::refund).
    ///
    /// # Cancel safety
    /// The store is asked by this call, not by the first poll: a dropped future still takes effect. The fields of the
    /// response show it only if the future was awaited, or the store answered at once, as memory does.
    pub fn settle(&self, actual: u64) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        self.change(self.change_each(|_, account| account.settle(actual)))
    }

    /// The spends of a request before its decision, in the order of its asks.
    pub(super) fn of_request(
        plan: &LimitPlan,
        asks: &RequestAsks,
        mut decision: Option<&mut Decision>,
        trials: &[Arc<Trial>],
    ) -> Self {
        let account = |limit: usize, limiter: &RateLimiter, key: &Key, spent, receipt, trial| {
            let name = plan.limits[limit].name.clone();
            Arc::new(MeterAccount::new(name, limiter.clone(), key.clone(), (spent, receipt), trial))
        };
        let asked = asks.iter().enumerate().map(|(index, asked)| {
            let receipt = decision.as_mut().and_then(|decision| decision.take_receipt(index));
            account(asked.limit, asked.limiter(plan), &asked.key, asked.cost, receipt, None)
        });
        let tried = trials.iter().map(|trial| {
            let receipt = trial.take_receipt();
            account(trial.limit, &trial.limiter, &trial.key, trial.cost, receipt, Some(Arc::clone(trial)))
        });
        Self::from_accounts(asked.chain(tried).collect())
    }

    /// Puts the meter into the extensions of a request, joined with the meters of outer layers.
    pub(crate) fn enter(&self, extensions: &mut Extensions) {
        let outer = extensions.remove::<Self>().unwrap_or_default();
        let both = match (self.accounts(), outer.accounts()) {
            (_, []) => self.clone(),
            ([], _) => outer,
            (own, outer) => Self::from_accounts(own.iter().chain(outer).cloned().collect()),
        };
        extensions.insert(both);
    }

    /// Gives back all units of the accounts with indices for which `is_given_back` is true.
    pub(super) fn give_back(&self, is_given_back: impl Fn(usize) -> bool) {
        let all_of = |index| if is_given_back(index) { u64::MAX } else { 0 };
        let changes = self.change_each(|index, account| account.refund(all_of(index)));
        if changes.iter().any(|entry| entry.gives_back()) {
            // If the answer is not ready, it is not waited for.
            drop(self.change(changes));
        }
    }

    /// Sets the spend of each account for which `actual` returns units, all in one call of the store. Its answer is not
    /// waited for.
    pub(crate) fn settle_each(&self, actual: impl Fn(usize) -> Option<u64>) {
        let changes = self.change_each(|place, account| match actual(place) {
            Some(actual) => account.settle(actual),
            None => account.refund(0),
        });
        if changes.iter().any(|entry| entry.charged() > 0 || entry.gives_back()) {
            drop(self.change(changes));
        }
    }

    /// The policy of each enforced account, and the status of its key if it has changed since the decision.
    pub(crate) fn now(&self) -> impl Iterator<Item = (Arc<Policy>, Option<Now>)> {
        let enforced = self.accounts().iter().filter(|account| !account.is_trial());
        enforced.map(|account| (Arc::clone(&account.policy), account.now()))
    }

    fn from_accounts(accounts: Vec<Arc<MeterAccount>>) -> Self {
        Self(if accounts.is_empty() { None } else { Some(accounts.into()) })
    }

    fn accounts(&self) -> &[Arc<MeterAccount>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Changes all accounts in one step: of two concurrent calls, the later one finds in each account the spend that the earlier one has
    /// left.
    fn change_each(&self, change: impl Fn(usize, &mut LockedAccount<'_>) -> MeterEntry) -> Vec<MeterEntry> {
        let mut accounts: SmallVec<[_; 2]> = self.accounts().iter().map(|account| account.lock()).collect();
        accounts.iter_mut().enumerate().map(|(index, account)| change(index, account)).collect()
    }

    fn change(
        &self,
        changes: Vec<MeterEntry>,
    ) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        let calls = self.ask(changes);
        async move {
            let (mut standing, mut failed) = (None::<Decided>, None);
            for MeterCall { accounts, policies, answer } in calls {
                match answer.await {
                    Ok(_) if accounts == 0 => {}
                    Ok(decision) => {
                        let own = Decided::new(decision.of_first(accounts), policies);
                        standing = Some(match standing {
                            Some(others) => others.merge(&own),
                            None => own,
                        });
                    }
                    Err(error) => failed = Some(error),
                }
            }
            failed.map_or(Ok(Standing::new(standing)), Err)
        }
    }

    /// Asks the stores for these changes, one per account, with a call of its own for each account in shadow. Returns the calls for the
    /// enforced accounts.
    fn ask(&self, mut changes: Vec<MeterEntry>) -> SmallVec<[MeterCall; 1]> {
        let (enforced, trials): (Vec<_>, Vec<_>) =
            self.accounts().iter().zip(&mut changes).partition(|(account, _)| !account.is_trial());
        for (account, entry) in trials {
            if !account.would_be_refused() {
                // The store starts at once; its answer is not awaited.
                drop(MeterCall::make([(account, entry)].into_iter()));
            }
        }
        MeterCall::make(enforced.into_iter())
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts = self.accounts().iter();
        f.debug_map().entries(accounts.map(|account| (account.policy.name(), account.spent()))).finish()
    }
}
