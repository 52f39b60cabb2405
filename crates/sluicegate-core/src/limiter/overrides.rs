//! Temporary changes of policies by operators: [`Overrides`].

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{ConfigError, ConfigErrorKind, StoreError, StoreErrorKind};
use crate::key::Key;
use crate::policy::{Board, Override, OverrideBuilder};
use crate::store::{Event, IntoStore, SharedFuture, Store, Write, note_shared_store};

/// The most policies of one store that have an override, or had one recently.
const MOST: usize = 1_000;

/// Attempts to write while other instances write in between.
const ATTEMPTS: usize = 16;

/// The overrides of a store: an operator changes the quotas or the mode of a policy for a time, on all instances of the service, without a
/// deployment.
///
/// An [`Override`] changes the policy in force in one step for all limiters that name it, and spent units still count; when its
/// time ends, the policy of the code is back. It names its operator. Each override has a version: when two operators act at
/// once, the second sees what the first has done, instead of undoing it.
///
/// On a store that instances [share](Self::are_shared), such as Redis, each instance has an override within 5 s, and a new instance
/// has it at once. When the store loses overrides, by a restart or a flush, the instances that know them write them again. While the
/// store is down, overrides stay in force until they end, and none can be put. On a store in memory they apply to this instance only.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::limiter::Overrides;
/// use sluicegate_core::policy::{Override, PolicyMode};
/// use sluicegate_core::{MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let login = Policy::gcra("login", "5/min").on(&store)?;
/// let overrides = Overrides::of(&store);
///
/// let more = Override::builder("login", "ada").quota("50/min").lasting(Duration::from_secs(600));
/// let standing = overrides.put(more).await?;
/// assert_eq!(login.policy().to_string(), "login: 50/min (gcra)");
/// assert_eq!(login.own_policy().to_string(), "login: 5/min (gcra)");
///
/// // Setting one mode for all policies is one step, too: all of them change, or none.
/// let shadow = ["search", "mail"].map(|name| Override::builder(name, "ada").mode(PolicyMode::Shadow));
/// assert!(overrides.put_all(shadow).await.unwrap_err().to_string().contains("\"search\""));
///
/// // Bob has not seen Ada's change.
/// let other = overrides.put(Override::builder("login", "bob").quota("9/min")).await.unwrap_err();
/// assert_eq!(other.standing().map(Override::by), Some("ada"));
///
/// overrides.withdraw("login", standing.version(), "bob").await?;
/// assert_eq!(login.policy().to_string(), "login: 5/min (gcra)");
/// # Ok(())
/// # }
/// ```
///
/// # When not to use it
/// For a permanent change: [`RateLimiter::replace`](crate::RateLimiter::replace), or the code. An override lasts at
/// most 30 days.
#[derive(Clone)]
pub struct Overrides(Arc<dyn Store>);

impl Overrides {
    /// The overrides of this store: pass the store that the policies were put on, including its wrappers.
    pub fn of(store: impl IntoStore) -> Self {
        let store = store.into();
        follow(&store);
        Self(store)
    }

    /// Whether other instances get the overrides, too; otherwise they apply to this instance only.
    pub fn are_shared(&self) -> bool {
        self.0.shared().is_some()
    }

    /// The overrides in force that this instance knows, sorted by policy name, and within a policy by key.
    pub fn list(&self) -> Vec<Arc<Override>> {
        let now_us = self.0.now_us();
        self.0.limiters().overrides().all_standing(now_us).cloned().collect()
    }

    /// The override in force of a policy, or of one of its keys, if this instance knows it.
    pub fn standing(&self, policy: &str, key: Option<&Key>) -> Option<Arc<Override>> {
        standing_on(&*self.0, policy, key)
    }

    /// Reads shared overrides anew, and returns the overrides in force.
    ///
    /// # Errors
    /// When the store does not answer. Known overrides stay in force.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing here, and the next call reads again.
    pub async fn read(&self) -> Result<Vec<Arc<Override>>, StoreError> {
        let read = exchange(&self.0, None, self.0.now_us()).await?;
        learn(&self.0, &read);
        Ok(self.list())
    }

    /// Puts an override. It is in force here when this returns.
    ///
    /// # Errors
    /// [`OverrideErrorKind::Invalid`] when no policy of this name is open here, when the store cannot support the changed policy, or
    /// when the override changes nothing or lasts no time. [`OverrideErrorKind::OutOfDate`] when the override in force is not the one
    /// to [replace](OverrideBuilder::replacing). Then nothing has changed. [`OverrideErrorKind::Store`] when the store has not
    /// answered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the override may have been put or not.
    #[expect(clippy::missing_panics_doc, reason = "one change is put, so one override comes back")]
    pub async fn put(&self, change: OverrideBuilder) -> Result<Arc<Override>, OverrideError> {
        let all = self.put_all([change]).await?;
        Ok(all.into_iter().next().expect("each has been put"))
    }

    /// Puts several overrides, all or none of them.
    ///
    /// # Errors
    /// As [`put`](Self::put), when one of them cannot be put, and for two overrides of one policy.
    ///
    /// # Cancel safety
    /// If the future is dropped, the overrides may have been put or not.
    pub async fn put_all(
        &self,
        changes: impl IntoIterator<Item = OverrideBuilder>,
    ) -> Result<Vec<Arc<Override>>, OverrideError> {
        let changes: Vec<_> = changes.into_iter().collect();
        for (index, change) in changes.iter().enumerate() {
            self.check(change)?;
            let is_same = |other: &OverrideBuilder| other.policy == change.policy && other.key == change.key;
            if changes[..index].iter().any(is_same) {
                return Err(refused(&change.policy, "two overrides of one policy: put one of them").into());
            }
        }
        self.write(|board, now_us| {
            let put = |change: &OverrideBuilder| {
                let over = change.build(now_us)?;
                let subject = (&*change.policy, change.key.as_ref());
                expect(board, subject, change.replaces, now_us, || over.to_string())?;
                Ok(board.put(over))
            };
            changes.iter().map(put).collect()
        })
        .await
    }

    /// Ends the override of this version in the name of this operator; the policy of the code is back here when this returns.
    ///
    /// # Errors
    /// [`OverrideErrorKind::OutOfDate`] when another override is in force, or none; [`OverrideErrorKind::Store`] when the store has not
    /// answered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the override may be withdrawn or not.
    pub async fn withdraw(&self, policy: &str, version: u64, by: &str) -> Result<(), OverrideError> {
        self.write(|board, now_us| {
            // The override of a key, if it has this version.
            let given = board.all_given(policy, now_us).find(|over| over.version() == version);
            let key = given.and_then(|over| over.key().cloned());
            let withdrawal = Override::withdrawal(policy, key.clone(), by, now_us)?;
            expect(board, (policy, key.as_ref()), Some(version), now_us, || withdrawal.to_string())?;
            Ok(board.put(withdrawal))
        })
        .await
        .map(drop)
    }

    /// Changes the shared value, and tries again if another operator has written in between.
    async fn write<T>(
        &self,
        change: impl Fn(&mut Board, u64) -> Result<T, OverrideError>,
    ) -> Result<T, OverrideError> {
        let mut there = exchange(&self.0, None, self.0.now_us()).await?;
        for _ in 0..ATTEMPTS {
            learn(&self.0, &there);
            let now_us = self.0.now_us();
            let mut board = self.0.limiters().overrides().clone();
            let done = change(&mut board, now_us)?;
            if board.len() > MOST {
                let problem = format!("overrides of more than {MOST} policies: withdraw others");
                return Err(ConfigError::new(ConfigErrorKind::Override, problem).into());
            }
            let bytes = board.bytes();
            let found = exchange(&self.0, Some((&board, &there)), now_us).await?;
            if *found == *bytes {
                learn(&self.0, &found);
                follow_all(&self.0);
                return Ok(done);
            }
            there = found;
        }
        Err(StoreError::with_source(StoreErrorKind::Unavailable, "others write all the time").unsent().into())
    }

    /// Checks an override before anything is written.
    fn check(&self, change: &OverrideBuilder) -> Result<(), OverrideError> {
        let over = change.build(self.0.now_us())?;
        match self.0.limiters().get(&change.policy) {
            Some(limiter) => Ok(limiter.would_keep(&over)?),
            None => Err(refused(&change.policy, self.unknown()).into()),
        }
    }

    fn unknown(&self) -> String {
        let open = self.0.limiters().all();
        let names: Vec<_> =
            open.iter().map(|limiter| limiter.own_policy().name().to_owned()).take(8).collect();
        let more = if open.len() > names.len() { ", and others" } else { "" };
        format!(
            "no policy of this name is open on this store, only {names:?}{more}: name one of them, or the store that the policy \
             was put on"
        )
    }
}

/// The override in force of a policy on this store, or of one of its keys.
pub(super) fn standing_on(store: &dyn Store, policy: &str, key: Option<&Key>) -> Option<Arc<Override>> {
    // Before the board is locked, which takes no other lock.
    let now_us = store.now_us();
    store.limiters().overrides().standing(policy, key, now_us).cloned()
}

fn refused(policy: &str, problem: impl Into<Cow<'static, str>>) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Override, problem).in_policy(policy)
}

/// Checks that the override in force is the one that an operator has seen.
fn expect(
    board: &Board,
    (policy, key): (&str, Option<&Key>),
    version: Option<u64>,
    now_us: u64,
    wanted: impl FnOnce() -> String,
) -> Result<(), OverrideError> {
    if board.standing(policy, key, now_us).map(|over| over.version()) == version {
        return Ok(());
    }
    let last = board.last(policy, key).filter(|last| last.is_withdrawal() || last.stands_at(now_us)).cloned();
    Err(OverrideError(OverrideProblem::OutOfDate { wanted: wanted(), last }))
}

/// From now on the handles of this store follow the overrides that any instance writes to the shared store.
pub(super) fn follow(store: &Arc<dyn Store>) {
    // A store that shares nothing has no such events, and a listener has a cost.
    if store.shared().is_some() && store.limiters().is_first_to_follow() {
        note_shared_store();
        // Weak, because the store keeps its listeners.
        let weak_store = Arc::downgrade(store);
        store.listen(Arc::new(move |event: &Event<'_>| {
            // Looked at first: a store tells of each decision, and an upgrade writes to a line that all threads share.
            if let Event::Shared(bytes) = event
                && let Some(store) = weak_store.upgrade()
            {
                learn(&store, bytes);
            }
        }));
    }
}

/// Merges the value that was read and updates the policies in force. An override that is known here but missing in the store is
/// written again: the store was flushed or restarted, or is a replica that had not received it.
fn learn(store: &Arc<dyn Store>, bytes: &[u8]) {
    let read = Board::read(bytes);
    let now_us = store.now_us();
    let (board, has_changed) = {
        let mut board = store.limiters().overrides();
        let before = board.clone();
        board.learn(&read);
        board.forget(now_us);
        (board.clone(), *board != before)
    };
    if let Some(shared) = store.shared()
        && board.is_news_to(&read)
    {
        // Not awaited: if another instance was faster, its write arrives in a moment.
        drop(shared.exchange(Some(written(&board, &board.bytes(), bytes, now_us))));
    }
    if has_changed {
        follow_all(store);
    }
}

/// Applies the overrides known here to the policies in force.
fn follow_all(store: &Arc<dyn Store>) {
    let replaced = store.limiters().all().into_iter().filter_map(|limiter| limiter.follow());
    // One by one, with notifications outside of all locks.
    replaced.for_each(|replaced| replaced.tell());
}

/// The value to write.
fn written<'a>(board: &Board, bytes: &'a [u8], over: &'a [u8], now_us: u64) -> Write<'a> {
    Write { over, bytes, keep: Duration::from_micros(board.kept_us().saturating_sub(now_us)) }
}

/// Writes a board if the store still has the value that was read, and returns its value afterwards; without a board, it only
/// reads. A store that shares nothing keeps the board for this instance.
fn exchange(store: &Arc<dyn Store>, write: Option<(&Board, &[u8])>, now_us: u64) -> SharedFuture {
    let bytes = write.map_or_else(Vec::new, |(board, _)| board.bytes());
    let Some(shared) = store.shared() else {
        let mut known = store.limiters().overrides();
        if let Some((board, _)) = write.filter(|(_, over)| *over == known.bytes()) {
            *known = board.clone();
        }
        let there = Arc::from(known.bytes());
        return Box::pin(std::future::ready(Ok(there)));
    };
    shared.exchange(write.map(|(board, over)| written(board, &bytes, over, now_us)))
}

crate::debug_as!(Overrides, overrides => overrides.list());

/// An override that was not put or withdrawn. Nothing has changed, unless the [kind](Self::kind) says that the effect is unknown.
#[derive(Debug)]
pub struct OverrideError(OverrideProblem);

/// The kind of problem of an [`OverrideError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverrideErrorKind {
    /// No policy of this name is open on this store, or the store cannot support the changed policy, or the override itself is invalid.
    Invalid,
    /// The override in force is not the one that the operator has seen, or there is none.
    OutOfDate,
    /// The shared store did not answer; it is unknown whether it has taken the override.
    Store,
}

#[derive(Debug)]
enum OverrideProblem {
    Invalid(ConfigError),
    OutOfDate { wanted: String, last: Option<Arc<Override>> },
    Store(StoreError),
}

impl OverrideError {
    /// The kind of problem.
    pub fn kind(&self) -> OverrideErrorKind {
        match self.0 {
            OverrideProblem::Invalid(_) => OverrideErrorKind::Invalid,
            OverrideProblem::OutOfDate { .. } => OverrideErrorKind::OutOfDate,
            OverrideProblem::Store(_) => OverrideErrorKind::Store,
        }
    }

    /// The problem, as data.
    pub fn config(&self) -> Option<&ConfigError> {
        match &self.0 {
            OverrideProblem::Invalid(error) => Some(error),
            _ => None,
        }
    }

    /// The override that another operator has put in the meantime; `None` if that operator has withdrawn it.
    pub fn standing(&self) -> Option<&Override> {
        match &self.0 {
            OverrideProblem::OutOfDate { last, .. } => last.as_deref().filter(|last| !last.is_withdrawal()),
            _ => None,
        }
    }
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            OverrideProblem::Invalid(error) => error.fmt(f),
            OverrideProblem::OutOfDate { wanted, last: Some(last) } if last.is_withdrawal() => {
                write!(
                    f,
                    "not done: {wanted}. The last override is {last}: put another one without `replacing`"
                )
            }
            OverrideProblem::OutOfDate { wanted, last: Some(last) } => {
                let version = last.version();
                write!(f, "not done: {wanted}. Another override stands: {last}, with version {version}. ")?;
                f.write_str("Name that version to replace or withdraw it")
            }
            OverrideProblem::OutOfDate { wanted, last: None } => {
                write!(f, "not done: {wanted}. No override stands: put one without `replacing`")
            }
            OverrideProblem::Store(_) => {
                f.write_str("the store did not take the override, or did not say so: look again")
            }
        }
    }
}

impl Error for OverrideError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            OverrideProblem::Invalid(error) => error.source(),
            OverrideProblem::OutOfDate { .. } => None,
            OverrideProblem::Store(error) => Some(error),
        }
    }
}

impl From<ConfigError> for OverrideError {
    fn from(error: ConfigError) -> Self {
        Self(OverrideProblem::Invalid(error))
    }
}

impl From<StoreError> for OverrideError {
    fn from(error: StoreError) -> Self {
        Self(OverrideProblem::Store(error))
    }
}
