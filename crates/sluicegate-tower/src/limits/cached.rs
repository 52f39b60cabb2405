//! Quotas that are looked up by a key, and remembered for a time: [`QuotaCache`].

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::support::{Seldom, lock};
use tokio::time::{Instant, timeout};

use crate::limits::of_request::PendingValue;
use crate::limits::quotas::ChosenQuotas;

/// The most keys that are remembered.
const MOST: usize = 10_000;

/// The time for which a look-up may replace known quotas, and after which a failed one is repeated.
const PATIENCE: Duration = Duration::from_secs(1);

/// The quotas of the keys that were asked for last.
pub(super) struct QuotaCache<K, F> {
    fresh_for: Duration,
    look_up: F,
    slots: Mutex<Slots<K>>,
    failed: Seldom,
}

/// Slots in two generations: when the younger one is full, it takes the place of the older one, which is forgotten.
struct Slots<K> {
    young: HashMap<K, Arc<Slot>>,
    old: HashMap<K, Arc<Slot>>,
}

#[derive(Default)]
struct Slot {
    known: Mutex<Option<KnownQuotas>>,
    /// Held by the request that looks the key up.
    look_up: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct KnownQuotas {
    chosen: ChosenQuotas,
    fresh_until: Instant,
}

impl<K, F> QuotaCache<K, F> {
    pub(super) fn new(fresh_for: Duration, look_up: F) -> Self {
        let slots = Mutex::new(Slots { young: HashMap::new(), old: HashMap::new() });
        Self { fresh_for, look_up, slots, failed: Seldom::default() }
    }
}

impl<K, F, T, C, E> QuotaCache<K, F>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    F: Fn(K) -> T + Send + Sync + 'static,
    T: Future<Output = Result<C, E>> + Send + 'static,
    C: Into<ChosenQuotas> + 'static,
    E: fmt::Display + 'static,
{
    /// The quotas of a key, or the future that looks them up.
    pub(super) fn quotas(self: &Arc<Self>, key: K) -> Result<ChosenQuotas, PendingValue<ChosenQuotas>> {
        let slot = self.slot(&key);
        match slot.fresh() {
            Some(chosen) => Ok(chosen),
            None => Err(Box::pin(Arc::clone(self).find(key, slot))),
        }
    }

    fn slot(&self, key: &K) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.young.get(key) {
            return Arc::clone(slot);
        }
        let slot = slots.old.remove(key).unwrap_or_default();
        if slots.young.len() >= MOST / 2 {
            slots.old = std::mem::take(&mut slots.young);
        }
        slots.young.insert(key.clone(), Arc::clone(&slot));
        slot
    }

    async fn find(self: Arc<Self>, key: K, slot: Arc<Slot>) -> ChosenQuotas {
        let known = slot.known().map(|known| known.chosen);
        let _turn = match (slot.look_up.try_lock(), &known) {
            (Ok(turn), _) => turn,
            (Err(_), Some(known)) => return known.clone(),
            (Err(_), None) => slot.look_up.lock().await,
        };
        if let Some(chosen) = slot.fresh() {
            return chosen;
        }
        let look_up = (self.look_up)(key);
        let found = match known {
            Some(_) => {
                timeout(PATIENCE, look_up).await.map_err(|_| "it takes longer than a second".to_owned())
            }
            None => Ok(look_up.await),
        };
        let (chosen, fresh_for) = match found.and_then(|found| found.map_err(|error| error.to_string())) {
            Ok(found) => (found.into(), self.fresh_for),
            Err(error) => {
                if self.failed.is_due() {
                    tracing::warn!(
                        "the quotas of a key could not be looked up, so its old ones stay: {error}"
                    );
                }
                (known.unwrap_or(ChosenQuotas::Default), PATIENCE)
            }
        };
        slot.remember(chosen.clone(), fresh_for);
        chosen
    }
}

impl Slot {
    fn known(&self) -> Option<KnownQuotas> {
        lock(&self.known).clone()
    }

    fn fresh(&self) -> Option<ChosenQuotas> {
        self.known().filter(|known| Instant::now() < known.fresh_until).map(|known| known.chosen)
    }

    fn remember(&self, chosen: ChosenQuotas, fresh_for: Duration) {
        let fresh_until = Instant::now() + fresh_for;
        *lock(&self.known) = Some(KnownQuotas { chosen, fresh_until });
    }
}
