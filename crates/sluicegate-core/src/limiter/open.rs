//! Putting policies on a store, and replacing them there: one or several, all or none.
//!
//! Each step that can fail comes before the first one that takes effect. The store's list of
//! handles is locked first, then the replacements of each handle, and listeners are told when all
//! locks are open again.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use super::handle::{Handle, RateLimiter};
use super::handles::{find, insert};
use super::overrides::follow;
use super::replacement::Replacement;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::Policy;
use crate::store::{Inherit, PreparedPolicy, Store};
use crate::suspension;

impl RateLimiter {
    /// Puts a policy on a store, or finds it there: a name that is open gives the handle that is open, with its buckets,
    /// its queues, and the policy that has replaced this one since.
    ///
    /// # Errors
    /// When the store cannot keep the policy exactly, or its name is in use there for a different one.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy, RateLimiter};
    ///
    /// let store = MemoryStore::new();
    /// let login = RateLimiter::new(&store, Policy::gcra("login", "5/min").build()?)?;
    /// let again = Policy::gcra("login", "5/min").on(&store)?;
    /// assert!(again.is(&login)); // the same handle and the same buckets
    ///
    /// let error = Policy::gcra("login", "6/min").on(&store).unwrap_err();
    /// assert!(error.to_string().contains("the name is taken"), "{error}");
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn new(store: impl Into<Arc<dyn Store>>, policy: Policy) -> Result<Self, ConfigError> {
        let all = put(&store.into(), vec![policy], None)?;
        Ok(all.into_iter().next().expect("each policy has a handle"))
    }

    /// Puts several policies on a store, as [`new`](Self::new) does, all or none of them. The handles come in the order of the
    /// policies.
    ///
    /// # Errors
    /// When one of them cannot be opened, or two have the same name. Then none was opened.
    pub fn open_all(
        store: impl Into<Arc<dyn Store>>,
        policies: impl IntoIterator<Item = Policy>,
    ) -> Result<Vec<Self>, ConfigError> {
        put(&store.into(), policies.into_iter().collect(), None)
    }

    /// Puts several policies on a store, all or none of them: a name that is not open is opened, and the policy of one that is
    /// open is replaced, as [`replace`](Self::replace) does. For a file of rules that is read again: whoever puts a policy of
    /// such a name on the store afterwards gets the handle that is there, whatever quotas that policy has.
    ///
    /// ```
    /// use sluicegate_core::limiter::Inherit;
    /// use sluicegate_core::{MemoryStore, Policy, RateLimiter};
    ///
    /// let store = MemoryStore::new();
    /// let login = Policy::gcra("login", "5/min").on(&store)?;
    ///
    /// let rules = [Policy::gcra("login", "9/min").build()?, Policy::gcra("search", "100/min").build()?];
    /// let limiters = RateLimiter::replace_all(&store, rules, Inherit::Spent)?;
    /// assert!(limiters[0].is(&login));
    /// assert_eq!(login.policy().to_string(), "login: 9/min (gcra)");
    ///
    /// // A log is bounded on this store, so neither of these takes effect.
    /// let rules = [Policy::gcra("login", "1/min").build()?, Policy::sliding_log("log", "999999/min").build()?];
    /// assert!(RateLimiter::replace_all(&store, rules, Inherit::Spent).is_err());
    /// assert_eq!(login.policy().to_string(), "login: 9/min (gcra)");
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// When the store cannot keep one of them, or two have the same name. Then nothing has changed.
    pub fn replace_all(
        store: impl Into<Arc<dyn Store>>,
        policies: impl IntoIterator<Item = Policy>,
        inherit: Inherit,
    ) -> Result<Vec<Self>, ConfigError> {
        put(&store.into(), policies.into_iter().collect(), Some(inherit))
    }

    /// Replaces the policy for everybody who names it on this store; `inherit` says how keys start under the new one. By an
    /// equal policy it changes nothing, unless everybody is to start afresh. Accounts that are
    /// [kept](Self::keep_accounts) stay kept. What an [override](super::Overrides) says of the policy, it says of the new one, as
    /// long as it stands; a policy that is made from the present one is best made from [`own_policy`](Self::own_policy), which no
    /// override has changed.
    ///
    /// # Errors
    /// When the new policy has another name, or the store cannot keep it; the old one then stays in force.
    ///
    /// It takes effect for requests that are decided from now on. Turns that were given out stay,
    /// and requests that wait keep their place. The old policy's memory is let go of when none of
    /// its keys matters any more.
    ///
    /// ```
    /// use sluicegate_core::limiter::Inherit;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let plan = Policy::gcra("plan", "100/h").on(&MemoryStore::new())?;
    /// plan.check_cost("ada", 60).now().expect("memory answers at once")?;
    /// plan.replace(Policy::gcra("plan", "200/h").build()?, Inherit::Spent)?;
    ///
    /// let now = plan.peek("ada").now().expect("memory answers at once")?;
    /// assert_eq!((now.capacity(), now.remaining()), (200, 140));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace(&self, policy: Policy, inherit: Inherit) -> Result<(), ConfigError> {
        if let Some(replacement) = self.replacement(|_| policy, inherit)? {
            replacement.commit().tell(self.store());
        }
        Ok(())
    }

    /// From now on the store keeps account of what is given back, so that a refund is exact; see
    /// [`PolicyBuilder::refunds`](crate::policy::PolicyBuilder::refunds).
    ///
    /// # Errors
    /// When the store cannot keep it.
    pub fn keep_accounts(&self) -> Result<(), ConfigError> {
        if self.policy().gives_back() {
            return Ok(());
        }
        if let Some(replacement) = self.replacement(Policy::with_refunds, Inherit::Spent)? {
            replacement.commit().tell(self.store());
        }
        Ok(())
    }

    /// Prepares a replacement of the policy as code has it, of which nobody sees anything before it is committed. None if there
    /// is nothing to replace.
    fn replacement(
        &self,
        policy: impl FnOnce(&Policy) -> Policy,
        inherit: Inherit,
    ) -> Result<Option<Replacement<'_>>, ConfigError> {
        let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = policy(&own.policy);
        let loses_accounts = own.policy.gives_back() && !policy.gives_back();
        let policy = if loses_accounts { policy.with_refunds() } else { policy };
        Replacement::prepare(self, own, policy, inherit)
    }

    /// What has to be replaced so that this handle serves whoever puts this policy on the store: nothing if it was opened by
    /// that policy, or is replaced by it.
    fn joined_by(&self, policy: Policy) -> Result<Option<Replacement<'_>>, ConfigError> {
        let own = self.own_policy();
        if !self.0.is_ruled && !policy.is_like(self.0.first.policy()) && !policy.is_like(&own) {
            return Err(crate::store::name_taken(&policy, &own));
        }
        if !policy.gives_back() || own.gives_back() {
            return Ok(None);
        }
        self.replacement(Policy::with_refunds, Inherit::Spent)
    }
}

/// How one of several policies gets its handle.
enum Step<'a> {
    /// As it is prepared, and as code has it.
    Open(PreparedPolicy, Arc<Policy>),
    Join(&'a RateLimiter, Option<Replacement<'a>>),
}

/// Puts policies on a store, all or none: first all that can fail, then what takes effect. With a way to inherit, a policy that
/// is open under one of their names is replaced.
fn put(
    store: &Arc<dyn Store>,
    policies: Vec<Policy>,
    replace: Option<Inherit>,
) -> Result<Vec<RateLimiter>, ConfigError> {
    let mut names = HashSet::new();
    if let Some(twice) = policies.iter().find(|policy| !names.insert(policy.name())) {
        let problem = format!("two policies named {:?}: give each a name of its own", twice.name());
        return Err(ConfigError::new(ConfigErrorKind::NameTaken, problem));
    }
    follow(store);
    let mut open = store.limiters().lock();
    let found: Vec<_> = policies.iter().map(|policy| find(&open, policy.name())).collect();
    let steps = policies.into_iter().zip(&found).map(|(policy, found)| match (found, replace) {
        (None, _) => open_first(&**store, policy),
        (Some(handle), None) => Ok(Step::Join(handle, handle.joined_by(policy)?)),
        (Some(handle), Some(inherit)) => Ok(Step::Join(handle, handle.replacement(|_| policy, inherit)?)),
    });
    let steps = steps.collect::<Result<Vec<Step<'_>>, ConfigError>>()?;
    let mut news = Vec::new();
    let limiters = steps.into_iter().map(|step| match step {
        Step::Open(first, own) => {
            let limiter =
                RateLimiter(Arc::new(Handle::new(Arc::clone(store), first, own, replace.is_some())));
            news.extend(limiter.follow());
            insert(&mut open, &limiter);
            limiter
        }
        Step::Join(limiter, replacement) => {
            news.extend(replacement.map(Replacement::commit));
            limiter.clone()
        }
    });
    let limiters = limiters.collect();
    drop(open);
    news.iter().for_each(|replaced| replaced.tell(store));
    Ok(limiters)
}

/// Opens a policy whose name has no handle. Calls that are under way may still hold the name, for what an override has made of
/// the policy when it had one.
fn open_first<'a>(store: &dyn Store, policy: Policy) -> Result<Step<'a>, ConfigError> {
    let taken = match suspension::open(store, policy.clone(), None) {
        Ok(first) => {
            let own = Arc::clone(first.policy());
            return Ok(Step::Open(first, own));
        }
        Err(error) => error,
    };
    let over = store.limiters().overrides().standing(policy.name(), store.now_us()).cloned();
    let changed =
        over.filter(|_| taken.kind() == ConfigErrorKind::NameTaken).map(|over| over.changed(&policy));
    match changed.map(|changed| suspension::open(store, changed?, None)) {
        Some(Ok(first)) => Ok(Step::Open(first, Arc::new(policy))),
        _ => Err(taken),
    }
}
