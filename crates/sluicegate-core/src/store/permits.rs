//! Permits that the instances of a service share, for authors of stores: [`SharedPermits`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::key::Key;
use crate::support::lock;

/// The limits in flight that this process counts alone, and whether it also has a store that instances share.
static ALONE: Mutex<CountedAlone> =
    Mutex::new(CountedAlone { names: BTreeSet::new(), is_beside_shared: false });

struct CountedAlone {
    names: BTreeSet<String>,
    is_beside_shared: bool,
}

/// Notes that this process counts the permits of this limit alone. It is logged once if the process also has a store that instances
/// share, now or later: each instance then gives out all of them, which is probably not meant.
pub fn note_counted_alone(name: &str) {
    let mut alone = lock(&ALONE);
    if alone.names.len() < 100 && alone.names.insert(name.to_owned()) && alone.is_beside_shared {
        warn(name);
    }
}

/// Notes that this process has a store that instances share.
#[cfg(feature = "limiter")]
pub(crate) fn note_shared_store() {
    let mut alone = lock(&ALONE);
    if !std::mem::replace(&mut alone.is_beside_shared, true) {
        alone.names.iter().for_each(|name| warn(name));
    }
}

#[cfg(feature = "tracing")]
fn warn(name: &str) {
    tracing::warn!(
        in_flight = name,
        "each instance gives out all of these permits, although the process has a store that instances share: build it by \
         `InFlight::builder(..).on(&store)`, or `.on(MemoryStore::new())` if this is meant; in a rules file `shared: true`"
    );
}

#[cfg(not(feature = "tracing"))]
fn warn(_: &str) {}

/// The permits of one limit in flight that this instance holds, for all keys. The crate `sluicegate-in-flight` has them; a
/// [`Store`](crate::Store) that [shares](super::Shared::share_permits) them has a task that works on them.
///
/// # Contract of the store's task
/// - It waits until something has [changed](Self::poll_changed), and then tells the store the [`demands`](Self::demands) that have
///   changed, in order: a call that is under way has ended, or is never obeyed after a later one.
/// - It tells the store all demands three times in each [`lease`](Self::lease), or the store gives the permits of this instance to others
///   when the lease of its last call is over.
/// - It hands over each [`answer`](Self::answer), or that there was [none](Self::unanswered).
/// - It ends when nobody [can ask](Self::is_closed) any more, and nothing is left to tell.
pub trait SharedPermits: fmt::Debug + Send + Sync + 'static {
    /// The name of the limit.
    fn name(&self) -> &str;

    /// The number of permits of each key, for all instances together.
    fn permits(&self) -> u64;

    /// The time after which the permits of an instance that the store does not hear of are given to others.
    fn lease(&self) -> Duration;

    /// Takes the function that keeps the store's task running, and calls it before each request for a permit. While it returns `false`, requests
    /// are treated as the limit says for an outage: the tokio runtime of the task has ended, and the request is on none.
    fn report_by(&self, keep_running: Box<dyn Fn() -> bool + Send + Sync>);

    /// Ready when demands have changed, or nobody can ask any more; otherwise the task is woken when it is. One task may wait at a time.
    fn poll_changed(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Whether nobody can ask any more, and nobody holds a permit.
    fn is_closed(&self) -> bool;

    /// Whether requests wait for permits of other instances.
    fn is_waiting(&self) -> bool;

    /// The demands to tell the store now. Permits whose lease is over are lost, and no part of them.
    fn demands(&self, of: DemandsOf) -> Vec<PermitDemand>;

    /// Takes the answer to a demand.
    fn answer(&self, demand: &PermitDemand, grant: PermitGrant);

    /// Notes that the store gave no answer to these demands. Until it gives one, requests are treated as the limit says for an outage.
    fn unanswered(&self, demands: &[PermitDemand]);

    /// Lets the next request ask the store again, although the last call had no answer: for when there is nothing to tell it.
    fn resume(&self);

    /// Gives up the permits whose lease is over, and tells their holders. The time until the next lease is over, if there is one.
    fn expire(&self) -> Option<Duration>;
}

/// The permits of a key that this instance holds and wants: what it tells the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitDemand {
    /// The key.
    pub key: Key,
    /// The permits that are out on this instance.
    pub in_use: u64,
    /// The permits that it wants, those in use among them.
    pub wanted: u64,
    /// The number of requests that go on waiting if there is no permit for them now.
    pub waiting: u64,
    /// The time for which its first request has waited.
    pub waited: Duration,
    /// The time of the demand, in microseconds: a lease counts from it.
    pub asked_at_us: u64,
}

impl PermitDemand {
    /// A demand of this time, for no permits yet.
    pub fn new(key: Key, asked_at_us: u64) -> Self {
        Self { key, in_use: 0, wanted: 0, waiting: 0, waited: Duration::ZERO, asked_at_us }
    }
}

/// The answer of the store to a [`PermitDemand`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitGrant {
    /// The permits that this instance holds from now on. If fewer than it has in use, the rest are lost to others.
    pub held: u64,
    /// The permits that are left for all instances.
    pub left: u64,
    /// The number of permits that requests of other instances have waited for longer than those of this one. As many that come back
    /// here go back to the store.
    pub owed: u64,
    /// The number of instances that hold permits of the key, this one among them; 0 if the store does not say so.
    pub instances: u64,
}

impl PermitGrant {
    /// An answer.
    pub fn new(held: u64, left: u64, owed: u64) -> Self {
        Self { held, left, owed, instances: 0 }
    }

    /// This grant, with the number of instances that hold permits of the key.
    #[must_use]
    pub fn by(self, instances: u64) -> Self {
        Self { instances, ..self }
    }
}

/// The keys that the store is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DemandsOf {
    /// The keys that have changed since they were told.
    Changed,
    /// These, and the keys for which requests wait.
    Waiting,
    /// All keys.
    All,
}
