//! A store around a memory store, whose answers a test makes: late, lost, or other ones.

use std::sync::{Arc, Mutex};

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{Ask, DecisionFuture, Event, Notice, Subject};
use sluicegate_core::wrap::{Within, Wrap};
use sluicegate_core::{ConfigError, MemoryStore, Policy, Store, StoreError};

/// How a store around another one answers.
pub trait Answer: Fn(&Within, &[Ask<'_>]) -> DecisionFuture + Send + Sync + 'static {}

impl<F: Fn(&Within, &[Ask<'_>]) -> DecisionFuture + Send + Sync + 'static> Answer for F {}

struct Around<F> {
    within: Within,
    answer: F,
}

impl<F: Answer> Wrap for Around<F> {
    type Own = ();

    fn within(&self) -> &Within {
        &self.within
    }

    fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        (self.answer)(&self.within, asks)
    }
}

/// A store with handles of its own, whose answers are made from those of the inner one.
pub fn around(inner: impl Into<Arc<dyn Store>>, answer: impl Answer) -> Arc<dyn Store> {
    Arc::new(Around { within: Within::new(inner), answer })
}

struct Plain(Within);

impl Wrap for Plain {
    type Own = ();

    fn within(&self) -> &Within {
        &self.0
    }

    fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// A store around another one, with handles of its own, that leaves everything else to it.
pub fn plain(inner: impl Into<Arc<dyn Store>>) -> Arc<dyn Store> {
    Arc::new(Plain(Within::new(inner)))
}

/// Writes down the events that it is told.
struct Told {
    within: Within,
    events: Arc<Mutex<Vec<String>>>,
}

impl Wrap for Told {
    type Own = ();

    fn within(&self) -> &Within {
        &self.within
    }

    fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn hear(&self, notice: &Notice<'_>) {
        let Notice::Event(event) = notice else { return };
        let of = |subject: &Subject<'_>| subject.policy.unwrap_or("-").to_owned();
        self.events.lock().unwrap().push(match event {
            Event::Undecided(subject, why) => format!("{why:?} {}", of(subject)),
            Event::TurnGivenUp(subject) => format!("TurnGivenUp {}", of(subject)),
            Event::Paused(subject, wait) => format!("Paused {} {wait:?}", of(subject)),
            other => format!("{other:?}"),
        });
    }
}

/// A store around another one, and the events that it was told so far.
#[must_use]
pub fn told(inner: impl Into<Arc<dyn Store>>) -> (Arc<dyn Store>, Arc<Mutex<Vec<String>>>) {
    let events = Arc::<Mutex<Vec<String>>>::default();
    (Arc::new(Told { within: Within::new(inner), events: Arc::clone(&events) }), events)
}

/// One of several services that share a store: it has handles, and queues, of its own.
pub fn instance(shared: &Arc<dyn Store>) -> Arc<dyn Store> {
    plain(Arc::clone(shared))
}

/// A store that decides, and then loses its answers for as long as a test says.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<Mutex<Option<StoreErrorKind>>>);

impl Fault {
    /// From now on answers are lost with this error, or arrive.
    pub fn set(&self, kind: Option<StoreErrorKind>) {
        *self.0.lock().unwrap() = kind;
    }
}

/// A store far away: it decides at once, its answers take another poll, and are lost while there is a fault.
#[must_use]
pub fn remote(memory: &MemoryStore, fault: &Fault) -> Arc<dyn Store> {
    let fault = fault.clone();
    around(memory, move |inner: &Within, asks: &[Ask<'_>]| {
        let decision = inner.decide(asks);
        let fails = *fault.0.lock().unwrap();
        DecisionFuture::pending(async move {
            tokio::task::yield_now().await;
            fails.map_or(decision.await, |kind| Err(StoreError::new(kind)))
        })
    })
}

/// A store whose answers take another poll.
#[must_use]
pub fn late(memory: &MemoryStore) -> Arc<dyn Store> {
    remote(memory, &Fault::default())
}

/// A store that decides, and loses its answers with this error.
#[must_use]
pub fn lost(memory: &MemoryStore, kind: StoreErrorKind) -> Arc<dyn Store> {
    let fault = Fault::default();
    fault.set(Some(kind));
    remote(memory, &fault)
}

/// A store that cannot be reached, which is known at once or after another poll.
#[must_use]
pub fn broken(at_once: bool) -> Arc<dyn Store> {
    failing(StoreErrorKind::Unavailable, at_once)
}

/// A store whose answers are always this error, at once or after another poll.
#[must_use]
pub fn failing(kind: StoreErrorKind, at_once: bool) -> Arc<dyn Store> {
    around(MemoryStore::new(), move |_: &Within, _: &[Ask<'_>]| {
        let error = move || Err(StoreError::new(kind));
        if at_once {
            return DecisionFuture::ready(error());
        }
        DecisionFuture::pending(async move {
            tokio::task::yield_now().await;
            error()
        })
    })
}
