//! A policy under the quotas of its keys, made once for each of them: [`Owned`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::handle::Pinned;
use crate::error::ConfigError;
use crate::policy::Quotas;

/// The rows of places, each twice as long as the row before.
const ROWS: usize = 7;
/// The places of the first row.
const FIRST: usize = 64;
/// The number of places.
const PLACES: usize = FIRST * ((1 << ROWS) - 1);
/// The most policies that are kept. A handle keeps this many for up to four replacements of its policy, and a store has room for more, so
/// that it can free unused quotas.
const MOST: usize = 12_288;

/// One policy in force, under the quotas of keys. The first 8,128 of them have a place, which the quotas remember, and stay as long as the
/// policy; the others are dropped when there is no room, and made again when needed.
pub(super) struct Owned {
    /// Identifies it within this process.
    number: u64,
    places: [OnceLock<PlaceRow>; ROWS],
    all: RwLock<HashMap<Quotas, PlacedPolicy>>,
}

type PlaceRow = Box<[OnceLock<Arc<Pinned>>]>;

/// A policy under some quotas, and its place if it has one.
type PlacedPolicy = (Arc<Pinned>, Option<usize>);

impl Owned {
    /// The policy under quotas that remember its place.
    #[inline]
    pub(super) fn get(&self, quotas: &Quotas) -> Option<&Arc<Pinned>> {
        let (row, at) = spot(quotas.place_in(self.number)?);
        self.places.get(row)?.get()?.get(at)?.get()
    }

    /// The policy under these quotas.
    ///
    /// # Errors
    /// The error of `make`.
    pub(super) fn get_or_make(
        &self,
        quotas: &Quotas,
        make: impl FnOnce() -> Result<Pinned, ConfigError>,
    ) -> Result<Arc<Pinned>, ConfigError> {
        if let Some(kept) = self.get(quotas) {
            return Ok(Arc::clone(kept));
        }
        let known = self.all.read().unwrap_or_else(PoisonError::into_inner).get(quotas).cloned();
        let (pinned, place) = match known {
            Some(known) => known,
            None => self.put(quotas, Arc::new(make()?)),
        };
        if let Some(place) = place {
            quotas.remember_place(self.number, place);
        }
        Ok(pinned)
    }

    fn put(&self, quotas: &Quotas, pinned: Arc<Pinned>) -> PlacedPolicy {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(quotas) {
            return known.clone();
        }
        if all.len() >= MOST {
            all.retain(|_, (_, place)| place.is_some());
        }
        // Nothing is dropped before all places are taken.
        let place = Some(all.len()).filter(|place| *place < PLACES);
        if let Some((row, at)) = place.map(spot) {
            let row = self.places[row].get_or_init(|| (0..FIRST << row).map(|_| OnceLock::new()).collect());
            row[at].get_or_init(|| Arc::clone(&pinned));
        }
        all.insert(quotas.clone(), (Arc::clone(&pinned), place));
        (pinned, place)
    }
}

impl Default for Owned {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: it only has to be a different number each time.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { number, places: Default::default(), all: RwLock::default() }
    }
}

/// The row of a place, and its index there.
#[inline]
fn spot(place: usize) -> (usize, usize) {
    let place = place + FIRST;
    let row = (place.ilog2() - FIRST.ilog2()) as usize;
    (row, place - (FIRST << row))
}
