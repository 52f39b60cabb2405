//! One policy under the quotas of its keys, prepared once for each of them: [`PolicyByQuotas`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use crate::error::ConfigError;
use crate::policy::Quotas;
use crate::store::PreparedPolicy;
use crate::support::{read, write};

/// The rows of places, each twice as long as the row before.
const ROWS: usize = 7;
/// The places of the first row.
const FIRST: usize = 64;
/// The number of places.
const PLACES: usize = FIRST * ((1 << ROWS) - 1);
/// The most policies that are kept. A handle keeps this many for up to four replacements of its policy, and a store has room for more, so
/// that it can free unused quotas.
const MOST: usize = 12_288;

/// One policy under the quotas of keys. The first 8,128 of them have a place, which the quotas remember, and stay as long as the
/// policy; the others are dropped when there is no room, and prepared again when needed.
pub(super) struct PolicyByQuotas {
    /// Identifies it within this process.
    number: u64,
    rows: [OnceLock<Box<[OnceLock<UnderQuotas>]>>; ROWS],
    all: RwLock<HashMap<Quotas, (UnderQuotas, Option<usize>)>>,
}

/// The policy under some quotas; `None` if it cannot have them, so that its own quotas decide.
pub(super) type UnderQuotas = Option<Arc<PreparedPolicy>>;

impl PolicyByQuotas {
    /// The policy under quotas that remember its place.
    #[inline]
    pub(super) fn get(&self, quotas: &Quotas) -> Option<&UnderQuotas> {
        let (row, index) = row_and_index(quotas.place_in(self.number)?);
        self.rows.get(row)?.get()?.get(index)?.get()
    }

    /// The policy under these quotas, as `prepare` makes it if it is not kept.
    ///
    /// # Errors
    /// The error of `prepare`, which is not kept.
    pub(super) fn get_or_prepare(
        &self,
        quotas: &Quotas,
        prepare: impl FnOnce() -> Result<UnderQuotas, ConfigError>,
    ) -> Result<UnderQuotas, ConfigError> {
        if let Some(under) = self.get(quotas) {
            return Ok(under.clone());
        }
        let known = read(&self.all).get(quotas).cloned();
        let (under, place) = match known {
            Some(known) => known,
            None => self.put(quotas, prepare()?),
        };
        if let Some(place) = place {
            quotas.remember_place(self.number, place);
        }
        Ok(under)
    }

    fn put(&self, quotas: &Quotas, under: UnderQuotas) -> (UnderQuotas, Option<usize>) {
        let mut all = write(&self.all);
        if let Some(known) = all.get(quotas) {
            return known.clone();
        }
        if all.len() >= MOST {
            all.retain(|_, (_, place)| place.is_some());
        }
        // Nothing is dropped before all places are taken.
        let place = Some(all.len()).filter(|place| *place < PLACES);
        if let Some((row, index)) = place.map(row_and_index) {
            let row = self.rows[row].get_or_init(|| (0..FIRST << row).map(|_| OnceLock::new()).collect());
            row[index].get_or_init(|| under.clone());
        }
        all.insert(quotas.clone(), (under.clone(), place));
        (under, place)
    }
}

impl Default for PolicyByQuotas {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: it only has to be a different number each time.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { number, rows: Default::default(), all: RwLock::default() }
    }
}

#[inline]
fn row_and_index(place: usize) -> (usize, usize) {
    let place = place + FIRST;
    let row = (place.ilog2() - FIRST.ilog2()) as usize;
    (row, place - (FIRST << row))
}
