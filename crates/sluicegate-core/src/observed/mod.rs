//! Who is limited, by which policy, and why: [`Observed`], a store around a store that counts every decision.
//!
//! One line to add, around the store that limiters are put on. Each decision is counted once for each policy that it asked,
//! whoever asked: a layer, a handle, an attribute, a call that goes out, a policy in shadow.
//!
//! ```
//! use sluicegate_core::observed::Observed;
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let store = Observed::named("memory", MemoryStore::new())?;
//! let login = Policy::gcra("login", "5/min").on(&store)?;
//! for _ in 0..7 {
//!     login.check("ada").now().expect("memory answers at once")?;
//! }
//! let login = &store.snapshot().policies[0];
//! assert_eq!((login.totals.allowed, login.totals.rejected, login.units.spent), (5, 2, 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When not to use it
//! Where nobody looks: a count costs a few nanoseconds of every decision.

mod answer;
mod counts;
mod front;
mod lanes;
mod meter;
mod meters;
mod names;
mod offenders;
mod past;
mod rates;
mod sample;
mod snapshot;
mod time;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

pub use self::answer::Answer;
use self::front::Front;
use self::meters::Meters;
use self::names::Name;
pub use self::offenders::{Asker, Offender, OffenderKind};
use self::past::Past;
pub use self::past::PastEvent;
pub use self::snapshot::{
    Minute, PolicySnapshot, Rate, Snapshot, StoreErrors, StoreSnapshot, StoreState, Totals, Units,
};
use self::time::TimeOf;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::Key;
use crate::resilient::BreakerState;
use crate::store::{Listener, Listeners, Store};
use crate::wrap::Within;

/// Counts all decisions of a store. Clones are handles to the same counts.
///
/// It goes around everything else, [`Resilient`](crate::Resilient) among it, so that it sees what requests see.
///
/// A decision is counted when its answer comes; an answer that nobody waits for any more, because its request has gone, is not.
#[derive(Clone)]
pub struct Observed(Arc<Front>);

impl Observed {
    /// Observes this store under a name, by which pages and metrics call it.
    ///
    /// # Errors
    /// [`ConfigErrorKind::NameTaken`] when another observed store of this process has the name, or the store is observed
    /// already; and for a name outside `[a-z0-9][a-z0-9._-]{0,63}`.
    pub fn named(name: impl Into<String>, store: impl Into<Arc<dyn Store>>) -> Result<Self, ConfigError> {
        let (name, store) = (Name::take(name.into())?, store.into());
        if let Some(observed) = store.status().observed {
            let problem = format!(
                "{:?} is around a store that is observed as {observed:?}: each decision would count twice",
                name.as_str()
            );
            return Err(ConfigError::new(ConfigErrorKind::NameTaken, problem));
        }
        let clock = TimeOf::store(&store);
        let past = Arc::new(Past::new(Arc::clone(&clock)));
        store.listen(Arc::clone(&past) as Arc<dyn Listener>);
        Ok(Self(Arc::new(Front {
            within: Within::new(store),
            name,
            meters: Meters::new(Arc::clone(&clock)),
            past,
            listeners: Listeners::default(),
            since_us: clock.now_us(),
            clock,
        })))
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// This listener hears of all events of the store from now on.
    pub fn listen(&self, listener: impl Listener) {
        Store::listen(&*self.0, Arc::new(listener));
    }

    /// What is known now. It sums counts and walks tables, so it is for a page that is read now and then.
    ///
    /// Policies beyond the first 256 names are counted together, and are not among its policies.
    pub fn snapshot(&self) -> Snapshot {
        let Front { meters, past, clock, since_us, .. } = &*self.0;
        let now_us = clock.now_us();
        let limiters = self.0.limiters().all();
        let policies = limiters.iter().filter_map(|limiter| {
            let meter = limiter.with_policy(|policy| meters.get(policy.name()))?;
            Some(meter.snapshot(limiter))
        });
        Snapshot {
            at: UNIX_EPOCH + Duration::from_micros(now_us),
            uptime: Duration::from_micros(now_us.saturating_sub(*since_us)),
            stores: vec![self.store_snapshot()],
            policies: policies.collect(),
            events: past.events(),
        }
    }

    /// The key that [`snapshot`](Self::snapshot) lists for this policy under that [reference](Offender::reference), while it is
    /// listed: to look it up, to reset it, to suspend it. Not one of more than 64 bytes, of which only the beginning is kept.
    pub fn listed_key(&self, policy: &str, reference: &str) -> Option<Key> {
        self.0.meters.get(policy)?.offenders().find(reference)
    }

    fn store_snapshot(&self) -> StoreSnapshot {
        let status = Store::status(&*self.0);
        let (resilient, memory) = (status.resilient, status.memory);
        let breaker = resilient.map_or(BreakerState::Closed, |resilient| resilient.breaker);
        StoreSnapshot {
            name: self.name().to_owned(),
            state: if breaker == BreakerState::Closed { StoreState::Ok } else { StoreState::Fallback },
            breaker,
            opened: resilient.map_or(0, |resilient| resilient.opened),
            errors: resilient.map_or_else(StoreErrors::default, |resilient| StoreErrors {
                timeout: resilient.timeouts,
                unavailable: resilient.unavailable,
                protocol: resilient.protocol,
            }),
            fallback_decisions: resilient.map_or(0, |resilient| resilient.fallback_decisions),
            in_fallback: resilient.map_or(Duration::ZERO, |resilient| resilient.in_fallback),
            unsettled_keys: resilient.map_or(0, |resilient| resilient.debts),
            keys: memory.map_or(0, |memory| memory.keys),
            slots: memory.map_or(0, |memory| memory.slots),
            evictions: memory.map_or(0, |memory| memory.evictions),
        }
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.name()).finish()
    }
}

impl From<&Observed> for Arc<dyn Store> {
    fn from(store: &Observed) -> Self {
        Arc::clone(&store.0) as Self
    }
}

impl From<Observed> for Arc<dyn Store> {
    fn from(store: Observed) -> Self {
        store.0
    }
}
