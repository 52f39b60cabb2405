//! Charging for what is known only while a request is served: [`Meter`].

mod account;
mod standing;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::Extensions;
use sluicegate_core::limiter::change_all;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, Key, Policy, RateLimiter, StoreError};

use self::account::{Account, Entry};
pub use self::standing::Standing;
use crate::admission::asks::Asks;
use crate::admission::restate::Now;
use crate::admission::trial::Trial;
use crate::limits::plan::Plan;
use crate::respond::decided::Decided;

/// The spend of a request, for handlers that learn its cost while they serve it: tokens, bytes, rows.
///
/// In the extensions of requests behind a layer with [`meter`](crate::limits::LimitsBuilder::meter). Cheap to clone, and
/// of use after the handler has returned: in a task, in a body that is still streamed. Clones share one account.
///
/// A meter is about all limits that its request was checked against; [`of`](Self::of) picks one of them. Limits that
/// did not apply, and those that nobody could decide in an outage, are not among them. A meter of no limit does nothing.
/// Policies in shadow are charged as well, and answer nothing.
///
/// Each call reaches the store at once; its [`Standing`] says how much is left then. Dropping that undoes
/// nothing. The fields of the response say the same, if the store has answered before the response comes: memory does so
/// at once, others when what the call returned is awaited.
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
///
/// # Which call
/// | call | for | example |
/// |---|---|---|
/// | [`settle`](Self::settle) | an estimate was charged, the true cost is known | tokens of a model's answer |
/// | [`charge`](Self::charge) | more work turned up | each further page of a report |
/// | [`refund`](Self::refund) | less was done | an upstream that failed half way |
///
/// # When not to use it
/// Where the cost follows from the request, use [`Limit::cost_fn`](crate::Limit::cost_fn); where it
/// follows from the head of the response, [`Limit::refund_if`](crate::Limit::refund_if). Both need
/// no handler that knows of limits.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<[Arc<Account>]>>);

impl Meter {
    /// The part of this meter that is about the limit of this name: that of [`Limit::named`](crate::Limit::named), or
    /// of its policy. A meter of no limit if there is none.
    #[must_use]
    pub fn of(&self, name: &str) -> Self {
        let accounts = self.accounts().iter().filter(|account| account.is_called(name));
        Self::from_accounts(accounts.cloned().collect())
    }

    /// Whether this meter is about no limit at all.
    pub fn is_empty(&self) -> bool {
        self.accounts().is_empty()
    }

    /// Units that the request has spent so far, of the limit that it has spent most of.
    ///
    /// Shadow policies count as well. 0 for a meter of no limit.
    pub fn spent(&self) -> u64 {
        self.accounts().iter().map(|account| account.spent()).max().unwrap_or(0)
    }

    /// Spends `units` more of each limit, whether they fit or not: what does not fit is a debt that later requests wait
    /// for.
    ///
    /// # Errors
    /// When the store gave no answer; the account is then as before, so that the call may be repeated.
    ///
    /// # Cancel safety
    /// The store is asked by this call, and not by the first poll: what is dropped takes effect all the same. The fields of the
    /// response show it only if the future was awaited, or the store answered at once, as memory does.
    pub fn charge(&self, units: u64) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        self.change(self.accounts().iter().map(|account| account.charge(units)).collect())
    }

    /// Gives `units` back to each limit, at most what the request has spent of it, and as far as they still count.
    ///
    /// # Errors
    /// When the store gave no answer. Whether they were given back is then unknown, and they will not be once more.
    ///
    /// # Cancel safety
    /// The store is asked by this call, and not by the first poll: what is dropped takes effect all the same. The fields of the
    /// response show it only if the future was awaited, or the store answered at once, as memory does.
    pub fn refund(&self, units: u64) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        self.change(self.accounts().iter().map(|account| account.refund(units)).collect())
    }

    /// Makes `actual` what the request has spent in all: the difference to what it has spent so far, which is the
    /// limit's cost at first, is charged or given back.
    ///
    /// # Errors
    /// As [`charge`](Self::charge) and [`refund`](Self::refund).
    ///
    /// # Cancel safety
    /// The store is asked by this call, and not by the first poll: what is dropped takes effect all the same. The fields of the
    /// response show it only if the future was awaited, or the store answered at once, as memory does.
    pub fn settle(&self, actual: u64) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        self.change(self.accounts().iter().map(|account| account.settle(actual)).collect())
    }

    /// The spends of a request that is about to be decided, in the order of its asks.
    pub(super) fn of_request(
        plan: &Plan,
        asks: &Asks,
        mut decision: Option<&mut Decision>,
        trials: &[Arc<Trial>],
    ) -> Self {
        let account = |limit: usize, limiter: &RateLimiter, key: &Key, spent, receipt, trial| {
            let name = plan.limits[limit].name.clone();
            Arc::new(Account::new(name, limiter.clone(), key.clone(), (spent, receipt), trial))
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

    /// Gives back all that was spent of the accounts in these places.
    pub(super) fn give_back(&self, is_given_back: impl Fn(usize) -> bool) {
        let accounts = self.accounts().iter().enumerate();
        let changes: Vec<_> = accounts
            .map(|(index, account)| account.refund(if is_given_back(index) { u64::MAX } else { 0 }))
            .collect();
        if changes.iter().any(|entry| entry.gives_back()) {
            // An answer that is not there at once is not waited for.
            drop(self.change(changes));
        }
    }

    /// Where the key of each enforced account stands, by which policy; nothing if that is as it was decided.
    pub(crate) fn now(&self) -> impl Iterator<Item = (Arc<Policy>, Option<Now>)> {
        let enforced = self.accounts().iter().filter(|account| !account.is_trial());
        enforced.map(|account| (Arc::clone(&account.policy), account.now()))
    }

    fn from_accounts(accounts: Vec<Arc<Account>>) -> Self {
        Self(if accounts.is_empty() { None } else { Some(accounts.into()) })
    }

    fn accounts(&self) -> &[Arc<Account>] {
        self.0.as_deref().unwrap_or_default()
    }

    fn change(
        &self,
        changes: Vec<Entry>,
    ) -> impl Future<Output = Result<Standing, StoreError>> + Send + use<> {
        let (mut verdict, enforced) = self.ask(changes);
        // Those that decide now, which may have replaced those that the request was checked against.
        let policies: Arc<[_]> = enforced.iter().map(|(account, _)| account.limiter.policy()).collect();
        let mut answered = verdict.take().map(DecisionFuture::now);
        if let Some(Ok(Ok(decision))) = &mut answered {
            take_note(&enforced, &policies, decision);
        }
        async move {
            let answer = match answered {
                None => return Ok(Standing::new(None)),
                Some(Ok(answer)) => answer,
                Some(Err(verdict)) => {
                    let mut answer = verdict.await;
                    if let Ok(decision) = &mut answer {
                        take_note(&enforced, &policies, decision);
                    }
                    answer
                }
            };
            match answer {
                Ok(decision) => {
                    let decided = Decided::new(decision.of_first(enforced.len()), policies);
                    Ok(Standing::new(Some(decided)))
                }
                Err(error) => {
                    for (account, charged) in enforced {
                        // A refund that was given and is given again would let more pass than the policy allows.
                        account.forget(charged);
                    }
                    Err(error)
                }
            }
        }
    }

    /// Asks the store for these changes, one per account: those in shadow by themselves. Says which accounts are enforced,
    /// with what they are charged.
    fn ask(&self, changes: Vec<Entry>) -> (Option<DecisionFuture>, Vec<(Arc<Account>, u64)>) {
        let mut enforced: Vec<_> = Vec::with_capacity(changes.len());
        for (account, mut entry) in self.accounts().iter().zip(changes) {
            if account.is_trial() {
                // The store begins with it at once; nobody waits for its answer.
                drop(change_all(account.changes(&mut entry)));
            } else {
                enforced.push((account, entry));
            }
        }
        // The first change of each account, whose standings are those that its policy's place in the decision shows.
        let verdict = (!enforced.is_empty()).then(|| {
            let (mut first, mut more) = (Vec::with_capacity(enforced.len()), Vec::new());
            for (account, entry) in &mut enforced {
                let mut changes = account.changes(entry).into_iter();
                first.extend(changes.next());
                more.extend(changes);
            }
            change_all(first.into_iter().chain(more))
        });
        (verdict, enforced.iter().map(|(account, entry)| (Arc::clone(account), entry.charged())).collect())
    }
}

/// Keeps what a change was answered with: the receipts of charges, and where the keys stand.
fn take_note(accounts: &[(Arc<Account>, u64)], policies: &[Arc<Policy>], decision: &mut Decision) {
    for (index, ((account, _), policy)) in accounts.iter().zip(policies).enumerate() {
        account.answered(decision.take_receipt(index), Now::of(decision, index, policy));
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accounts = self.accounts().iter();
        f.debug_map().entries(accounts.map(|account| (account.policy.name(), account.spent()))).finish()
    }
}
