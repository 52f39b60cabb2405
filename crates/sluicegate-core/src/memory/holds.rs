//! Units that are held for requests that wait for another limit.
//!
//! A request that waits for limit A must be sure of limit B when its turn comes, and must not have
//! spent B before: until then the units count in full and do not drain. They are kept [beside](Beside)
//! the table, and only while requests with several limits wait.
//!
//! Every decision on a key goes through its departures, so these are few, however many requests depart at one moment.

use smallvec::SmallVec;

use super::beside::Beside;

/// The units of a key that are held until one moment: they count in full until then, and become a spend at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) units: u64,
    /// When the requests depart.
    pub(super) until_us: u64,
    /// The number of the plan that the first request was counted by.
    pub(super) plan: u16,
}

/// The held units of a key, in the order of departure: one hold for each moment.
pub(super) type KeyHolds = SmallVec<[Hold; 2]>;

/// The requests that depart at one moment.
#[derive(Clone, Debug)]
pub(super) struct DepartureGroup {
    /// The units of all of them.
    hold: Hold,
    /// The number of each request, and its units.
    requests: SmallVec<[(u64, u64); 1]>,
    /// When the units will have drained, as far as it is known here: they may come on top of a debt or of reserved turns.
    over_us: u64,
}

/// The departures of a key in their order.
pub(super) type Departures = SmallVec<[DepartureGroup; 1]>;

/// The most moments at which held units of a key depart.
const MOMENTS: usize = 100;

/// The holds of the keys of one bucket, beside its table. Callers hold the lock of the key's set or shard.
pub(super) struct BucketHolds(Beside<Departures>);

impl BucketHolds {
    /// Holds of at most `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self(Beside::new(most))
    }

    /// Whether any key may hold units. Call it under the lock of the key's set.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.any()
    }

    /// The holds of a key.
    pub(super) fn of(&self, key: u64) -> KeyHolds {
        self.0.look(key, |all| all.iter().map(|departure| departure.hold).collect())
    }

    /// Whether the key holds units for the request with this number.
    pub(super) fn has(&self, key: u64, request: u64) -> bool {
        self.0.look(key, |all| place_of(all, request).is_some())
    }

    /// Whether a key may hold these units, too, up to `most`.
    pub(super) fn has_room(&self, key: u64, (units, most): (u64, u64), now_us: u64) -> bool {
        let (held, moments) = self.0.look(key, |all| (sum(all.iter().map(|one| one.hold)), all.len()));
        let has_room = || moments > 0 || self.0.has_room(now_us, |all| are_over(all, now_us));
        held.saturating_add(units) <= most && moments < MOMENTS && has_room()
    }

    /// Holds units of a key for the request with this number. Removes holds of other keys that have drained.
    pub(super) fn add(&self, key: u64, request: u64, (hold, over_us): (Hold, u64), now_us: u64) {
        let Hold { units, until_us, .. } = hold;
        let add = |all: &mut Departures| match all.binary_search_by_key(&until_us, |one| one.hold.until_us) {
            Ok(place) => {
                all[place].hold.units = all[place].hold.units.saturating_add(units);
                all[place].requests.push((request, units));
            }
            Err(place) => {
                let requests = SmallVec::from_buf([(request, units)]);
                all.insert(place, DepartureGroup { hold, requests, over_us });
            }
        };
        self.0.add(key, add, |all| are_over(all, now_us));
    }

    /// Notes that the held units of a key drain no sooner.
    pub(super) fn last_until(&self, key: u64, over_us: u64) {
        self.change(key, |all| {
            if let Some(last) = all.last_mut() {
                last.over_us = last.over_us.max(over_us);
            }
        });
    }

    /// Takes up to `units` out of the hold of a request; returns the number taken, or `None` if it has ended.
    pub(super) fn take(&self, key: u64, request: u64, units: u64) -> Option<u64> {
        self.change(key, |all| {
            let (departure, place) = place_of(all, request)?;
            let DepartureGroup { hold, requests, .. } = &mut all[departure];
            let taken = requests[place].1.min(units);
            requests[place].1 -= taken;
            if requests[place].1 == 0 {
                requests.swap_remove(place);
            }
            hold.units = requests.iter().fold(0, |sum, (_, units)| sum.saturating_add(*units));
            if requests.is_empty() {
                all.remove(departure);
            }
            Some(taken)
        })
    }

    /// Takes out all holds of a key that have ended.
    pub(super) fn ended(&self, key: u64, now_us: u64) -> KeyHolds {
        self.change(key, |all| {
            let count = all.partition_point(|one| one.hold.until_us <= now_us);
            all.drain(..count).map(|one| one.hold).collect()
        })
    }

    /// Forgets the holds of a key.
    pub(super) fn clear(&self, key: u64) {
        self.change(key, Departures::clear);
    }

    /// The departures of a key, to [`restore`](Self::restore) them.
    pub(super) fn copy(&self, key: u64) -> Departures {
        self.0.of(key)
    }

    /// Restores a key's departures.
    pub(super) fn restore(&self, key: u64, all: Departures) {
        self.0.restore(key, Some(all).filter(|all| !all.is_empty()));
    }

    fn change<T>(&self, key: u64, change: impl FnOnce(&mut Departures) -> T) -> T {
        self.0.change(key, change, |all| all.is_empty())
    }
}

/// The departure of the request with this number, and its place there.
fn place_of(all: &[DepartureGroup], request: u64) -> Option<(usize, usize)> {
    all.iter().enumerate().find_map(|(index, departure)| {
        let place = departure.requests.iter().position(|(other, _)| *other == request)?;
        Some((index, place))
    })
}

fn are_over(all: &[DepartureGroup], now_us: u64) -> bool {
    all.iter().all(|one| one.over_us <= now_us)
}

/// The units of all holds.
pub(super) fn units(held: &[Hold]) -> u64 {
    sum(held.iter().copied())
}

fn sum(holds: impl Iterator<Item = Hold>) -> u64 {
    holds.fold(0, |sum: u64, hold| sum.saturating_add(hold.units))
}
