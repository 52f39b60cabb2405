//! Puts policies on a store and replaces them there: one or several, all or none.
//!
//! Each step that can fail comes before the first one that takes effect. The store's list of
//! handles is locked first, then the replacements of each handle, and listeners are notified after all
//! locks are released.
//!
//! # Replacements
//! A handle has two policies: the one that code has put in force, and the one that decides, which an override may have changed.
//! Every replacement, by code, a file, an operator or the end of an override, has three steps: prepare, which can fail and has no
//! effect; commit, which cannot fail; and notification, outside of all locks.
//!
//! The lock of a handle is held from prepare to commit, so that replacements follow each other. The locks of several
//! handles are taken in the order in which the policies were given, under the lock of the store's handles.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError, Weak};
use std::time::Duration;

use super::handle::{Handle, InForce, RateLimiter};
use super::overrides::{follow, standing_on};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::{Override, Policy, PolicyBuilder};
use crate::store::{Event, Inherit, IntoStore, Limiters, PreparedPolicy, Store, Subject, make_room};
use crate::support::lock;
use crate::suspension;

impl RateLimiter {
    /// Puts a policy on a store, or finds it there: for an open name it returns the open handle, with its buckets,
    /// its queues, and any policy that has replaced this one since.
    ///
    /// # Errors
    /// When the store cannot count the policy exactly, or its name is in use there for a different policy.
    ///
    /// # Sharing
    /// To share buckets, clone one limiter. If another line of code opens a name again, the log says so once, at
    /// debug level, with both lines: two routes that give their policies one name share its buckets, which may not be intended.
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
    #[expect(clippy::missing_panics_doc, reason = "one policy is put, so one handle comes back")]
    #[track_caller]
    pub fn new(store: impl IntoStore, policy: Policy) -> Result<Self, ConfigError> {
        let all = open_all(store, [policy])?;
        Ok(all.into_iter().next().expect("each policy has a handle"))
    }

    /// Replaces the policy for every handle of its name on this store; `inherit` says how keys start under the new one. An
    /// equal policy changes nothing, unless all keys start afresh. Accounts that are
    /// [remembered](Self::remember) stay so. An [override](super::Overrides) of the policy applies to the new one while it is
    /// in force; to derive a policy from the current one, start from [`own_policy`](Self::own_policy), which no
    /// override has changed.
    ///
    /// # Errors
    /// When the new policy has another name, or the store cannot support it; the old policy then stays in force.
    ///
    /// It takes effect for decisions from now on. Reserved turns stay,
    /// and waiting requests keep their place. The old policy's memory is freed when none of its keys
    /// matters any more.
    ///
    /// ```
    /// use sluicegate_core::limiter::Inherit;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let plan = Policy::gcra("plan", "100/h").on(&MemoryStore::new())?;
    /// plan.check("ada").cost(60).now().expect("memory answers at once")?;
    /// plan.replace(Policy::gcra("plan", "200/h").build()?, Inherit::Spent)?;
    ///
    /// let now = plan.peek("ada").now().expect("memory answers at once")?;
    /// assert_eq!((now.capacity(), now.remaining()), (200, 140));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace(&self, policy: Policy, inherit: Inherit) -> Result<(), ConfigError> {
        self.replace_by(|_| policy, inherit).map(drop)
    }

    /// Forgets all keys of the policy: each has its whole burst again, or the units that it [starts](crate::Quota::starting_with) with. It
    /// is a [replacement](Self::replace) of the policy by itself with [`Inherit::Reset`], so that no key is walked: it costs one new table
    /// in memory, and nothing on Redis.
    ///
    /// Reserved turns still come at their times, [suspensions](crate::suspension) and the refusals that count towards
    /// one stay, as does an [override](super::Overrides).
    ///
    /// # On a store that several instances share
    /// Redis is not asked. When this instance first decides about a key after the reset, it forgets all units that the key has spent there,
    /// including units that other instances have spent since the reset; until then the key is unchanged for them. A reset on each of N
    /// instances in turn may give a key N bursts. When this instance restarts, keys that it has not decided about in
    /// between are unchanged. To reset a fleet exactly once, [replace](Self::replace) the policy on all instances by one of a
    /// higher [version](crate::policy::PolicyBuilder::version), with [`Inherit::Reset`].
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let login = Policy::gcra("login", "5/h").on(&MemoryStore::new())?;
    /// for name in ["ada", "bob"] {
    ///     login.check(name).cost(5).now().expect("memory answers at once")?;
    /// }
    /// login.reset_all()?;
    /// for name in ["ada", "bob"] {
    ///     assert_eq!(login.peek(name).now().expect("memory answers at once")?.remaining(), 5);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the store can no longer support the policy.
    pub fn reset_all(&self) -> Result<(), ConfigError> {
        self.replace_by(Policy::clone, Inherit::Reset).map(drop)
    }

    /// The replacement with which this handle also serves code that puts `policy` on the store. `None` if the handle does so
    /// already.
    fn joined_by(&self, policy: Policy) -> Result<Option<Replacement<'_>>, ConfigError> {
        let own = self.own_policy();
        let is_of_code = self.handle.opened_at.is_some();
        if is_of_code && !policy.is_like(self.handle.first.prepared.policy()) && !policy.is_like(&own) {
            return Err(crate::store::name_taken(&policy, &own));
        }
        let more = Policy::clone(&own).remembering_as(&policy);
        if more == *own {
            return Ok(None);
        }
        self.replacement(|_| more, Inherit::Spent)
    }
}

/// Puts several policies on a store, as [`RateLimiter::new`] does, all or none of them. The handles are in the order of the
/// policies.
///
/// # Errors
/// When one of them cannot be opened, or two have the same name. Then none is opened.
#[track_caller]
pub fn open_all(
    store: impl IntoStore,
    policies: impl IntoIterator<Item = Policy>,
) -> Result<Vec<RateLimiter>, ConfigError> {
    let (policies, here) = (policies.into_iter().collect(), Some(Location::caller()));
    put(&store.into(), policies, here, &|_| Inherit::Spent, &mut |_| Ok(()))
}

/// Puts several policies on a store, all or none of them, together with the rules that name them: a closed name is opened,
/// and the policy of an open name is replaced, as [`RateLimiter::replace`] does; `inherit` says for each of the policies how its keys
/// start. Code that puts a policy of such a name on the
/// store afterwards gets the open handle, whatever quotas its policy has.
///
/// `build` gets the limiters, in the order of the policies, when every other step that can fail has succeeded; if it fails, nothing has
/// changed. These limiters have the new policies already, which take effect for others when `build` has succeeded. A request that began
/// under the old rules may be decided by a new policy.
///
/// ```
/// use sluicegate_core::limiter::{self, Inherit};
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let store = MemoryStore::new();
/// let login = Policy::gcra("login", "5/min").on(&store)?;
/// let put = |quota: &str, log: &str| {
///     let policies = [Policy::gcra("login", quota).build()?, Policy::sliding_log("search", log).build()?];
///     limiter::replace_all(&store, policies, |_| Inherit::Spent, |limiters| Ok(limiters.to_vec()))
/// };
/// let old = put("6/min", "100/min")?;
/// let new = put("9/min", "100/min")?;
/// assert!(old[0].is(&login) && new[0].is(&login)); // one handle, one queue
/// assert_eq!(login.policy().to_string(), "login: 9/min (gcra)");
///
/// // The store bounds logs, so neither of these takes effect.
/// assert!(put("1/min", "999999/min").is_err());
/// assert_eq!(login.policy().to_string(), "login: 9/min (gcra)");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// # Errors
/// When the store cannot support one of them, or two have the same name, and the error of `build`. Then nothing has changed.
///
/// # Blocking
/// Waits up to a second for a name whose last limiter is being dropped by another thread.
///
/// # Deadlocks
/// `build` must neither open nor replace policies on this store: it would deadlock.
#[expect(clippy::missing_panics_doc, reason = "what is put was built")]
pub fn replace_all<T>(
    store: impl IntoStore,
    policies: impl IntoIterator<Item = Policy>,
    inherit: impl Fn(&Policy) -> Inherit,
    build: impl FnOnce(&[RateLimiter]) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let (mut build, mut built) = (Some(build), None);
    put(&store.into(), policies.into_iter().collect(), None, &inherit, &mut |limiters| {
        built = build.take().map(|build| build(limiters)).transpose()?;
        Ok(())
    })?;
    Ok(built.expect("it was built once"))
}

/// The step by which one of several policies gets its handle.
enum OpenStep<'a> {
    /// A new handle, which is not listed yet.
    Open(RateLimiter),
    Join(&'a RateLimiter, Option<Replacement<'a>>),
}

impl OpenStep<'_> {
    /// The limiter after this step.
    fn limiter(&self) -> RateLimiter {
        match self {
            Self::Join(_, Some(replacement)) => replacement.limiter(),
            Self::Join(limiter, None) => (*limiter).clone(),
            Self::Open(limiter) => limiter.clone(),
        }
    }
}

/// Puts policies on a store, all or none: first every step that can fail, including `build`, which is called at most once, then the
/// steps that take effect. An open policy stays and has to be equal, if a line of code opens it; otherwise it is replaced, and its keys
/// start as `inherit` says.
fn put(
    store: &Arc<dyn Store>,
    policies: Vec<Policy>,
    opened_at: Option<&'static Location<'static>>,
    inherit: &dyn Fn(&Policy) -> Inherit,
    build: &mut dyn FnMut(&[RateLimiter]) -> Result<(), ConfigError>,
) -> Result<Vec<RateLimiter>, ConfigError> {
    let mut names = HashSet::new();
    if let Some(twice) = policies.iter().find(|policy| !names.insert(policy.name())) {
        let problem = format!("two policies named {:?}: give each a name of its own", twice.name());
        return Err(ConfigError::new(ConfigErrorKind::NameTaken, problem));
    }
    follow(store);
    let mut tried = 0;
    loop {
        let mut open = store.limiters().lock();
        let found: Vec<_> = policies.iter().map(|policy| find(&open, policy.name())).collect();
        let mut is_held = false;
        let steps = policies.iter().cloned().zip(&found).map(|(policy, found)| match (found, opened_at) {
            (None, _) => {
                let opened = open_first(store, policy, opened_at);
                let opened = opened.inspect_err(|error| is_held = error.kind() == ConfigErrorKind::NameTaken);
                opened.map(OpenStep::Open)
            }
            (Some(handle), Some(_)) => Ok(OpenStep::Join(handle, handle.joined_by(policy)?)),
            (Some(handle), None) => {
                let inherit = inherit(&policy);
                Ok(OpenStep::Join(handle, handle.replacement(|_| policy, inherit)?))
            }
        });
        let steps = match steps.collect::<Result<Vec<OpenStep<'_>>, ConfigError>>() {
            Ok(steps) => steps,
            Err(_) if is_held && tried < TRIES => {
                tried += 1;
                // Other threads continue meanwhile and may open the name.
                drop(open);
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => return Err(error),
        };
        let coming: Vec<_> = steps.iter().map(OpenStep::limiter).collect();
        build(&coming)?;
        let mut news = Vec::new();
        let limiters = steps.into_iter().map(|step| match step {
            OpenStep::Open(limiter) => {
                news.extend(limiter.follow());
                insert(&mut open, &limiter);
                limiter
            }
            OpenStep::Join(limiter, replacement) => {
                news.extend(replacement.map(Replacement::commit));
                limiter.clone()
            }
        });
        let limiters = limiters.collect();
        drop(open);
        news.iter().for_each(Replaced::tell);
        if let Some(place) = opened_at {
            found.iter().flatten().for_each(|limiter| limiter.handle.tell_of_opening(place));
        }
        return Ok(limiters);
    }
}

/// Attempts to open a name that is held without a handle, a millisecond apart and without the lock of all limiters. A thread
/// that decides by the name may have to wait this long for a processor.
const TRIES: usize = 1_000;

/// Opens a policy under a name without a handle.
///
/// Another thread may be dropping the last handle of the name: it has released the handle, and releases the name when it
/// has freed a table or two. Running calls may hold the name for longer, because they hold the policy with an override that
/// was put while it had a handle: then it is opened with that override, which needs no wait.
fn open_first(
    store: &Arc<dyn Store>,
    policy: Policy,
    opened_at: Option<&'static Location<'static>>,
) -> Result<RateLimiter, ConfigError> {
    let open = |policy: Policy| suspension::open(&**store, policy, None);
    let overridden = || {
        let over = standing_on(&**store, policy.name(), None)?;
        open(over.changed(&policy).ok()?).ok()
    };
    let (first, own) = match open(policy.clone()) {
        Ok(first) => {
            let own = Arc::clone(first.policy());
            (first, own)
        }
        Err(error) if error.kind() != ConfigErrorKind::NameTaken => return Err(error),
        Err(error) => (overridden().ok_or(error)?, Arc::new(policy)),
    };
    Ok(RateLimiter::of(Arc::new(Handle::new(Arc::clone(store), first, own, opened_at))))
}

impl Limiters {
    /// The handle of this name, if it is open.
    pub fn get(&self, name: &str) -> Option<RateLimiter> {
        find(&self.lock(), name)
    }

    /// All open handles, by name.
    pub fn all(&self) -> Vec<RateLimiter> {
        let mut all: Vec<_> = self.lock().values().filter_map(limiter).collect();
        all.sort_unstable_by(|a, b| a.handle.name().cmp(b.handle.name()));
        all
    }
}

/// The reference to a limiter that its store holds.
type WeakLimiter = Weak<dyn Any + Send + Sync>;

fn limiter(held: &WeakLimiter) -> Option<RateLimiter> {
    held.upgrade()?.downcast().ok().map(RateLimiter::of)
}

fn find(handles: &HashMap<String, WeakLimiter>, name: &str) -> Option<RateLimiter> {
    handles.get(name).and_then(limiter)
}

/// Registers a new handle, and occasionally removes dropped handles.
fn insert(handles: &mut HashMap<String, WeakLimiter>, limiter: &RateLimiter) {
    make_room(handles, |handle| handle.strong_count() > 0);
    let handle: Weak<Handle> = Arc::downgrade(&limiter.handle);
    handles.insert(limiter.handle.name().to_owned(), handle);
}

impl PolicyBuilder {
    /// Builds the policy and puts it on a store, which makes a [`RateLimiter`].
    ///
    /// # Errors
    /// As [`build`](Self::build), and when the store cannot support the policy.
    ///
    /// A store is given by reference or by value; both are handles to the same store.
    ///
    /// Equal policies share their buckets, wherever they are opened: see [`RateLimiter::new`].
    #[track_caller]
    pub fn on(self, store: impl IntoStore) -> Result<RateLimiter, ConfigError> {
        RateLimiter::new(store, self.build()?)
    }
}

impl Handle {
    /// Logs once that another line of code opens the name, too. A line that runs several times is not reported.
    fn tell_of_opening(&self, again: &'static Location<'static>) {
        if let Some(first) = self.opened_at.filter(|first| *first != again) {
            self.opened_twice.call_once(|| log_opened_twice(self.name(), first, again));
        }
    }
}

#[cfg(feature = "tracing")]
fn log_opened_twice(policy: &str, first: &Location<'_>, again: &Location<'_>) {
    tracing::debug!(
        policy,
        %first,
        %again,
        "two places open one policy, so the limits that they make spend from the same buckets: if each is to count on its own, \
         give it a policy of another name; if they are meant to share, open it once and clone the limiter"
    );
}

#[cfg(not(feature = "tracing"))]
fn log_opened_twice(_: &str, _: &Location<'_>, _: &Location<'_>) {}

/// A policy that is prepared to replace the policy of a handle. It excludes other replacements.
pub(super) struct Replacement<'a> {
    lock: MutexGuard<'a, u64>,
    replaced: Replaced,
}

/// A replacement, for notifications when it has taken effect.
pub(super) struct Replaced {
    limiter: RateLimiter,
    old: Arc<InForce>,
    new: Arc<InForce>,
    inherit: Inherit,
}

impl<'a> Replacement<'a> {
    /// Prepares the policy of code, as changed by overrides if some are in force; `None` if the result is already in force.
    ///
    /// # Errors
    /// When the store cannot support the policy. An override that it cannot support is left out.
    pub(super) fn prepare(
        limiter: &RateLimiter,
        mut lock: MutexGuard<'a, u64>,
        policy: Policy,
        inherit: Inherit,
    ) -> Result<Option<Self>, ConfigError> {
        let (store, name) = (limiter.store(), limiter.handle.name());
        let old = limiter.handle.current.load_full();
        let now_us = store.now_us();
        let mut given: Vec<_> = store.limiters().overrides().all_given(name, now_us).cloned().collect();
        let over = standing_on(&**store, name, None);
        let new_keys = over.as_ref().filter(|over| over.is_for_new_keys()).cloned();
        let takes_quotas = !given.is_empty() || new_keys.is_some();
        let policy = if takes_quotas { policy.taking_quotas() } else { policy };
        let is_new = policy != *old.written;
        let over = over.filter(|over| is_new || over.version() != *lock);
        let open = |policy: &Policy| open_for(&**store, policy.clone(), &old, inherit);
        if over.is_some() && is_new {
            // The store must be able to support the policy after the override ends.
            open(&policy)?;
        }
        let changed = over.as_ref().map(|over| open(&over.changed(&policy)?));
        let (prepared, over) = match (over, changed) {
            (Some(over), Some(Ok(prepared))) => (prepared, Some(over)),
            (over, changed) => {
                if let (Some(over), Some(Err(error))) = (over, changed) {
                    // The policy of code applies unchanged. The override is reported once.
                    *lock = over.version();
                    warn(&over, &error);
                }
                (open(&policy)?, None)
            }
        };
        let new_keys = new_keys.filter(|_| over.is_some());
        let known_keys = match &new_keys {
            Some(over) if old.given.contains(over) => old.known_keys.clone(),
            Some(_) => store.limiters().known_keys(&policy),
            None => None,
        };
        // It has no key, and so is the first.
        given.splice(0..0, new_keys);
        let is_in_force = prepared.is(&old.prepared) && over == old.over && given == old.given;
        if is_in_force && !is_new {
            return Ok(None);
        }
        let ends_us = over.iter().chain(&given).map(|over| over.until_us()).min().unwrap_or(u64::MAX);
        let mut new = InForce::plain(prepared, Arc::new(policy), old.replacements + 1);
        (new.over, new.given, new.known_keys, new.ends_us) = (over, given, known_keys, ends_us);
        let (limiter, new) = (limiter.clone(), Arc::new(new));
        Ok(Some(Self { lock, replaced: Replaced { limiter, old, new, inherit } }))
    }

    /// The limiter after the commit, for code that runs before it.
    pub(super) fn limiter(&self) -> RateLimiter {
        self.replaced.limiter.before(&self.replaced.new)
    }

    /// Puts the policy in force.
    pub(super) fn commit(self) -> Replaced {
        let Self { lock, replaced } = self;
        let Replaced { limiter, old, new, inherit } = &replaced;
        if !new.prepared.is(&old.prepared) {
            // Before the first ask under the new policy, so that a later ask under the old one finds the spent units.
            suspension::replaced(&**limiter.store(), &old.prepared, &new.prepared, *inherit);
        }
        limiter.handle.current.store(Arc::clone(new));
        // Release: a thread that sees the count also sees the new policy.
        limiter.handle.replacements.fetch_add(1, Ordering::Release);
        drop(lock);
        replaced
    }
}

impl Replaced {
    /// Notifies listeners. To be called outside of all locks.
    pub(super) fn tell(&self) {
        let Self { limiter, old, new, inherit } = self;
        let store = &**limiter.store();
        let keys = |over: &Override| (over.key().cloned(), over.is_for_new_keys());
        let is_given = |over: &&Arc<Override>| new.given.iter().any(|given| keys(given) == keys(over));
        for over in old.given.iter().filter(|over| !is_given(over)) {
            let withdrawal = last_override(store, over).filter(|last| *last != *over);
            tell_of_key(store, over, Duration::ZERO, withdrawal.as_deref().map(Override::by));
        }
        for over in new.given.iter().filter(|over| !old.given.contains(over)) {
            let lasts = Duration::from_micros(over.until_us().saturating_sub(store.now_us()));
            tell_of_key(store, over, lasts, Some(over.by()));
        }
        let (before, after) = (old.prepared.policy(), new.prepared.policy());
        if before.is_like(after) && *inherit != Inherit::Reset {
            return;
        }
        // The override that has begun, or the withdrawal of the one that has ended.
        let over = match (&old.over, &new.over) {
            (old, new) if old == new => None,
            (_, Some(new)) => Some(Arc::clone(new)),
            (Some(old), None) => last_override(store, old).filter(|last| last.is_withdrawal()),
            (None, None) => None,
        };
        let by = over.as_deref().map(Override::by);
        #[cfg(feature = "tracing")]
        tracing::info!(
            target: "sluicegate::audit",
            policy = after.name(),
            from = %before,
            from_mode = %before.mode(),
            to = %after,
            to_mode = %after.mode(),
            inherit = %inherit,
            by,
            until_us = over.as_deref().map(Override::until_us),
            "the policy is replaced"
        );
        store.notice(&Event::PolicyReplaced { old: before, new: after, inherit: *inherit, by });
    }
}

/// The last override of the policy and key of `over`, which may be a withdrawal.
fn last_override(store: &dyn Store, over: &Override) -> Option<Arc<Override>> {
    store.limiters().overrides().last(over.policy(), over.key()).cloned()
}

/// Notifies listeners that a key has other quotas for this time, or no longer.
fn tell_of_key(store: &dyn Store, over: &Override, lasts: Duration, by: Option<&str>) {
    let subject = Subject::of(over.policy());
    let subject = over.key().map_or(subject, |key| subject.with_key(key.as_ref()));
    #[cfg(feature = "tracing")]
    {
        let (policy, key, until_us) =
            (over.policy(), over.key().map(crate::key::Key::shown), over.until_us());
        let what = if lasts.is_zero() {
            "a key no longer has the quotas that it was given"
        } else {
            "a key is given quotas for a time"
        };
        tracing::info!(target: "sluicegate::audit", policy, key, to = %over, by, until_us, "{what}");
    }
    store.notice(&Event::QuotasGiven { subject, quotas: over.quotas(), lasts, by });
}

impl RateLimiter {
    /// Prepares a replacement of the policy of code, which has no effect before it is committed. `None` if there is
    /// nothing to replace.
    pub(super) fn replacement(
        &self,
        policy: impl FnOnce(&Policy) -> Policy,
        inherit: Inherit,
    ) -> Result<Option<Replacement<'_>>, ConfigError> {
        let lock = lock(&self.handle.replacing);
        let written = Arc::clone(&self.handle.current.load().written);
        let policy = policy(&written).remembering_as(&written);
        Replacement::prepare(self, lock, policy, inherit)
    }

    /// Replaces the policy of code, and returns whether there was anything to replace.
    pub(super) fn replace_by(
        &self,
        policy: impl FnOnce(&Policy) -> Policy,
        inherit: Inherit,
    ) -> Result<bool, ConfigError> {
        let replaced = self.replacement(policy, inherit)?.map(Replacement::commit);
        replaced.iter().for_each(Replaced::tell);
        Ok(replaced.is_some())
    }

    /// Applies the overrides known here to the policy in force.
    pub(super) fn follow(&self) -> Option<Replaced> {
        self.follow_by(lock(&self.handle.replacing))
    }

    /// Ends an expired override, unless another thread is ending it.
    pub(super) fn end_override(&self) {
        let lock = match self.handle.replacing.try_lock() {
            Ok(lock) => lock,
            Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Some(replaced) = self.follow_by(lock) {
            replaced.tell();
        }
    }

    fn follow_by(&self, lock: MutexGuard<'_, u64>) -> Option<Replaced> {
        let policy = Policy::clone(&self.handle.current.load().written);
        // The store already supports the policy of code.
        Replacement::prepare(self, lock, policy, Inherit::Spent).ok()?.map(Replacement::commit)
    }

    /// Checks that the policy or the keys of an override can have its quotas.
    ///
    /// # Errors
    /// When the store cannot support them.
    pub(super) fn would_keep(&self, over: &Override) -> Result<(), ConfigError> {
        if over.key().is_some() || over.is_for_new_keys() {
            return self.check_quotas(&over.key_quotas);
        }
        let in_force = self.handle.current.load();
        let changed = over.changed(&in_force.written)?;
        open_for(&**self.store(), changed, &in_force, Inherit::Spent).map(drop)
    }
}

/// Opens a policy in place of the one in force, unless it is that one.
fn open_for(
    store: &dyn Store,
    policy: Policy,
    old: &InForce,
    inherit: Inherit,
) -> Result<PreparedPolicy, ConfigError> {
    if policy == **old.prepared.policy() && inherit != Inherit::Reset {
        return Ok(old.prepared.clone());
    }
    suspension::open(store, policy, Some((&old.prepared, inherit)))
}

#[cfg(feature = "tracing")]
fn warn(over: &Override, error: &ConfigError) {
    tracing::error!(
        target: "sluicegate::audit",
        policy = over.policy(),
        to = %over,
        by = over.by(),
        %error,
        "an override cannot be kept on this instance, and is left out"
    );
}

#[cfg(not(feature = "tracing"))]
fn warn(_: &Override, _: &ConfigError) {}
