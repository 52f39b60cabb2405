//! What was decided, as it happens: [`Log`].

use std::collections::BTreeMap;

use sluicegate_core::Decision;
use sluicegate_core::store::DecidedBy;

use crate::law::{Admission, Loss};

/// Everything that was decided in a run.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Of each key what it was admitted with the knowledge of the shared store, by that one's clock.
    pub shared: Vec<Vec<Admission>>,
    /// Of each key when the shared store forgot it.
    pub losses: Vec<Vec<Loss>>,
    /// What an instance (its number) admitted a key (its place) alone, by the instance's clock.
    pub alone: BTreeMap<(u64, usize), Vec<Admission>>,
    /// When an instance forgot what a key has spent: all of it by a reset, and units that the store had admitted and that were
    /// given back, for it does not know whether its own share had room for them.
    pub forgotten: BTreeMap<(u64, usize), Vec<Loss>>,
    /// How often each party allowed, and refused.
    pub decided: BTreeMap<DecidedBy, [u64; 2]>,
    /// Requests without an answer.
    pub failed: u64,
    /// Requests that found no instance.
    pub unserved: u64,
    /// Refusals by each party while the shared store had room.
    pub wrongly: BTreeMap<DecidedBy, u64>,
    /// Units that one exact store would have admitted, asked at the same moments.
    pub ideal_units: u64,
    /// Of each slice of the run what was decided in it.
    pub slices: Vec<Slice>,
    /// Whether a single store keeps each quota.
    is_of_one_store: bool,
    /// The latest refusal of a key by the store, as an instance has heard of it.
    refused: BTreeMap<(u64, usize), u64>,
    /// How old the answers were that refusals without the store repeated, in microseconds.
    pub ages_us: Vec<u64>,
}

/// What was decided in a slice of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// Units that were admitted by an answer of the shared store.
    pub by_store: u64,
    /// Units that were admitted locally, with its knowledge.
    pub locally: u64,
    /// Units that were admitted by instances alone.
    pub alone: u64,
    /// Units that one exact store would have admitted.
    pub ideal: u64,
    /// Units that instances held at the beginning of the slice, if they lease.
    pub held: Option<u64>,
}

/// A request that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Of which instance.
    pub(crate) instance: u64,
    /// By which key of each limit.
    pub(crate) keys: Vec<usize>,
    /// How many units.
    pub(crate) units: u64,
    /// In which slice of the run.
    pub(crate) slice: usize,
}

/// Where the admissions of a request stand in the log, to be struck out.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    asked: Asked,
    is_shared: bool,
    /// Of each limit its place among those of its key.
    indices: Vec<usize>,
}

impl Log {
    /// A log of this many keys of all limits together, in this many slices.
    pub(crate) fn new(keys: usize, slices: usize, is_of_one_store: bool) -> Self {
        Self {
            is_of_one_store,
            shared: vec![Vec::new(); keys],
            losses: vec![Vec::new(); keys],
            slices: vec![Slice::default(); slices],
            ..Self::default()
        }
    }

    /// Writes down a decision that was made between these moments, by the store's clock and by the instance's own.
    pub(crate) fn decide(
        &mut self,
        asked: &Asked,
        decision: &Decision,
        by_store: [u64; 2],
        own: [u64; 2],
    ) -> Option<Entry> {
        let (by, is_allowed) = (decision.decided_by(), decision.is_allowed());
        self.decided.entry(by).or_default()[usize::from(!is_allowed)] += 1;
        let instance = asked.instance;
        if !is_allowed {
            for key in self.places(asked) {
                if by == DecidedBy::Store {
                    self.refused.insert((instance, key), by_store[1]);
                } else if let Some(heard) = self.refused.get(&(instance, key)) {
                    self.ages_us.push(by_store[1] - heard);
                }
            }
            return None;
        }
        let slice = &mut self.slices[asked.slice];
        let (is_shared, [from_us, to_us]) = match by {
            DecidedBy::Store => {
                slice.by_store += asked.units;
                // A single store says when that was, to the microsecond.
                let at_us = decision.at_us();
                let is_known = (by_store[0]..=by_store[1]).contains(&at_us) && self.is_of_one_store;
                (true, if is_known { [at_us; 2] } else { by_store })
            }
            DecidedBy::Outage | DecidedBy::Off => {
                slice.alone += asked.units;
                return None;
            }
            DecidedBy::Fallback => {
                slice.alone += asked.units;
                (false, own)
            }
            _ => {
                slice.locally += asked.units;
                (true, by_store)
            }
        };
        let mut indices = Vec::new();
        for key in self.places(asked) {
            let list = match is_shared {
                true => &mut self.shared[key],
                false => self.alone.entry((instance, key)).or_default(),
            };
            list.push(Admission { from_us, to_us, units: asked.units });
            indices.push(list.len() - 1);
        }
        Some(Entry { asked: asked.clone(), is_shared, indices })
    }

    /// The places of a request's keys among those of all limits.
    fn places(&self, asked: &Asked) -> impl Iterator<Item = usize> + use<> {
        let keys = self.shared.len() / asked.keys.len();
        asked.keys.clone().into_iter().enumerate().map(move |(limit, key)| limit * keys + key)
    }

    /// Strikes out what was given back at this moment of the instance's clock: it was not used.
    pub(crate) fn strike(&mut self, entry: &Entry, own_us: u64) {
        let Asked { instance, units, .. } = entry.asked;
        for (key, index) in self.places(&entry.asked).zip(&entry.indices) {
            if entry.is_shared {
                let loss = Loss { from_us: own_us, to_us: own_us + 1_000_000, units };
                self.forgotten.entry((instance, key)).or_default().push(loss);
            }
            let list = match entry.is_shared {
                true => self.shared.get_mut(key),
                false => self.alone.get_mut(&(instance, key)),
            };
            if let Some(admission) = list.and_then(|list| list.get_mut(*index)) {
                admission.units = 0;
            }
        }
    }

    /// Units that were admitted and used, with the knowledge of the shared store.
    #[must_use]
    pub fn shared_units(&self) -> u64 {
        self.shared.iter().flatten().map(|one| one.units).sum()
    }

    /// Units that instances admitted alone.
    #[must_use]
    pub fn alone_units(&self) -> u64 {
        self.alone.values().flatten().map(|one| one.units).sum()
    }

    /// Decisions in all.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decided.values().flatten().sum()
    }
}
