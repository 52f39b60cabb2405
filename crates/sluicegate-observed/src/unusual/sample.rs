//! A sample of the keys of a policy: [`KeySample`].

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use ipnet::IpNet;
use sluicegate_core::key::KeyRef;
use sluicegate_core::store::KnownKeys;

/// The most keys in a sample. Their table takes 24 KiB.
const ROOM: usize = 448;
/// The slots of ten seconds in a minute.
pub(super) const MINUTE: u32 = 6;
/// A key is a newcomer for ten minutes.
pub(super) const NEW: u32 = 10 * MINUTE;
/// A key that was away for a day is new when it comes again.
const DAY: u32 = 24 * 60 * MINUTE;
/// Keys that join the sample later are watched for an hour before they count.
const LEARNING: u32 = 60 * MINUTE;
/// The networks that are named.
const NAMED: usize = 3;
/// Networks of fewer keys are not counted.
const FEWEST: usize = 3;

/// A random part of the keys, chosen by their digests, so that each request of a chosen key is seen: adaptive sampling (Wegman; Flajolet:
/// "On adaptive sampling", Computing 34, 1990). Up to 448 keys it is all of them, and every number is exact. When there is no room for a key,
/// every second key is dropped.
pub(super) struct KeySample {
    /// Seeded at random, so that no client can choose whether its keys are in the sample.
    digests: RandomState,
    keys: HashMap<u64, SampledKey, foldhash::fast::RandomState>,
    /// The number of zero bits that the digest of a kept key ends with.
    kept: u32,
    /// The number of zero bits that the digest of a counted key ends with. It exceeds `kept` while more keys are being learned.
    used: u32,
    /// The slot in which keys began to be learned.
    learning: u32,
}

struct SampledKey {
    first: u32,
    last: u32,
    network: Option<IpNet>,
    /// Requests in each slot of the last minute.
    lately: [u16; MINUTE as usize],
}

/// The keys of one minute.
#[derive(Default)]
pub(super) struct KeyFigures {
    /// Keys that came for the first time.
    pub(super) new: f64,
    /// The standard error of [`new`](Self::new).
    pub(super) error: f64,
    /// The share of requests by keys that came for the first time in the last ten minutes.
    pub(super) by_new: f64,
    /// The share of requests by the busiest one in a hundred keys.
    pub(super) by_busiest: f64,
    /// The networks with the largest shares.
    pub(super) networks: Vec<(String, f64)>,
    /// The networks with the largest shares by new keys.
    pub(super) networks_of_new: Vec<(String, f64)>,
}

impl KeySample {
    pub(super) fn new() -> Self {
        let keys = HashMap::with_capacity_and_hasher(ROOM, Default::default());
        Self { digests: RandomState::default(), keys, kept: 0, used: 0, learning: 0 }
    }

    /// Records a request of this key. Returns its digest.
    pub(super) fn see(&mut self, key: KeyRef<'_>, slot: u32) -> u64 {
        let digest = self.digests.hash_one(key);
        if digest.trailing_zeros() >= self.kept {
            match self.keys.get_mut(&digest) {
                Some(key) => key.see(slot),
                None => self.add(digest, key, slot),
            }
        }
        digest
    }

    /// The hasher of the digests of keys.
    pub(super) fn digests(&self) -> RandomState {
        self.digests.clone()
    }

    /// Adds a key, if it is still among the kept ones once there is room.
    #[cold]
    fn add(&mut self, digest: u64, key: KeyRef<'_>, slot: u32) {
        if self.keys.len() >= ROOM {
            self.make_room(slot);
            if digest.trailing_zeros() < self.kept {
                return;
            }
        }
        let network = key.address().map(network_of);
        let mut fresh = SampledKey { first: slot, last: slot, network, lately: [0; MINUTE as usize] };
        fresh.see(slot);
        self.keys.insert(digest, fresh);
    }

    /// The keys of the minute that ends with this slot.
    pub(super) fn figures(&mut self, slot: u32) -> KeyFigures {
        self.widen(slot);
        let (mut new, mut all, mut by_new) = (0, 0, 0);
        let (mut counts, mut networks, mut of_new) = (Vec::new(), NetworkCounts::new(), NetworkCounts::new());
        for (digest, key) in &self.keys {
            let count = key.count(slot);
            if count == 0 || digest.trailing_zeros() < self.used {
                continue;
            }
            all += count;
            counts.push(count);
            add(&mut networks, key, count);
            new += u32::from(slot.saturating_sub(key.first) < MINUTE);
            if slot.saturating_sub(key.first) < NEW {
                by_new += count;
                add(&mut of_new, key, count);
            }
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let busiest = counts.iter().take(counts.len().div_ceil(100)).sum();
        let weight = f64::from(1 << self.used.min(30));
        KeyFigures {
            new: f64::from(new) * weight,
            // Each key is in the sample with the probability 1 / weight.
            error: (f64::from(new) * weight * (weight - 1.0)).sqrt(),
            by_new: part(by_new, all),
            by_busiest: part(busiest, all),
            networks: largest(networks, all),
            networks_of_new: largest(of_new, all),
        }
    }

    /// Forgets the keys that were away for a day, or else every second key.
    fn make_room(&mut self, slot: u32) {
        self.keys.retain(|_, key| slot.saturating_sub(key.last) < DAY);
        while self.keys.len() > ROOM * 3 / 4 && self.kept < u64::BITS - 1 {
            self.kept += 1;
            self.used = self.used.max(self.kept);
            let kept = self.kept;
            self.keys.retain(|digest, _| digest.trailing_zeros() >= kept);
        }
    }

    /// Takes twice as many keys after a flood, once there is room for them.
    fn widen(&mut self, slot: u32) {
        if self.used > self.kept {
            if slot.saturating_sub(self.learning) >= LEARNING {
                self.used = self.kept;
            }
        } else if self.kept > 0 && self.keys.len() < ROOM / 4 {
            self.kept -= 1;
            self.learning = slot;
        }
    }
}

impl SampledKey {
    fn see(&mut self, slot: u32) {
        // After the clock was set back, counting continues in the last slot.
        let slot = slot.max(self.last);
        for passed in (self.last + 1..=slot).take(MINUTE as usize) {
            self.lately[(passed % MINUTE) as usize] = 0;
        }
        self.last = slot;
        let count = &mut self.lately[(slot % MINUTE) as usize];
        *count = count.saturating_add(1);
    }

    /// Its requests in the minute that ends with this slot.
    fn count(&self, slot: u32) -> u64 {
        let minute =
            slot.saturating_sub(MINUTE - 1).max(self.last.saturating_sub(MINUTE - 1))..=self.last.min(slot);
        minute.map(|slot| u64::from(self.lately[(slot % MINUTE) as usize])).sum()
    }
}

/// The requests and the keys of networks.
type NetworkCounts = HashMap<IpNet, (u64, usize)>;

fn add(networks: &mut NetworkCounts, key: &SampledKey, count: u64) {
    if let Some(network) = key.network {
        let (requests, keys) = networks.entry(network).or_default();
        (*requests, *keys) = (*requests + count, *keys + 1);
    }
}

/// The networks with the most requests, with their parts of all requests.
fn largest(networks: NetworkCounts, all: u64) -> Vec<(String, f64)> {
    let mut largest: Vec<_> = networks.into_iter().filter(|(_, (_, keys))| *keys >= FEWEST).collect();
    largest.sort_unstable_by_key(|(network, (requests, _))| (Reverse(*requests), *network));
    largest.truncate(NAMED);
    largest.into_iter().map(|(network, (requests, _))| (network.to_string(), part(requests, all))).collect()
}

/// The /24 of an address, or its /48 of IPv6.
fn network_of(address: IpAddr) -> IpNet {
    let address = address.to_canonical();
    let bits = if address.is_ipv4() { 24 } else { 48 };
    IpNet::new(address, bits).map_or_else(|_| address.into(), |network| network.trunc())
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn part(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}

// The keys that came before the requests of a policy became unusual: [`KeyHistory`].

/// The bits of a filter: 64 KiB.
const BITS: u64 = 1 << 19;
/// The bits that stand for a key.
const PER_KEY: u64 = 4;

/// The keys of one to two days, in Bloom filters: a key that came is always found, and a few others are found by mistake.
///
/// Keys become known one to two minutes after they came, so that those of a beginning attack do not. During an alarm no key becomes known.
pub(super) struct KeyHistory {
    /// The keys of the current minute, and of the minute before.
    lately: [Filter; 2],
    /// Known keys: those of the current day, and of the day before.
    known: [Filter; 2],
    begun: u32,
    /// The slot in which the day began.
    day: u32,
}

#[derive(Clone)]
struct Filter(Box<[u64]>);

impl KeyHistory {
    pub(super) fn new(slot: u32) -> Self {
        let two = || [Filter::new(), Filter::new()];
        Self { lately: two(), known: two(), begun: slot, day: slot }
    }

    /// Records a request of the key with this digest.
    pub(super) fn see(&mut self, digest: u64) {
        self.lately[0].add(digest);
    }

    /// A minute begins.
    pub(super) fn turn(&mut self, slot: u32, is_unusual: bool) {
        let [lately, before] = &mut self.lately;
        if is_unusual {
            (*lately, *before) = (Filter::new(), Filter::new());
            return;
        }
        self.known[0].add_all(before);
        *before = std::mem::replace(lately, Filter::new());
        if slot.saturating_sub(self.day) >= DAY {
            let day = std::mem::replace(&mut self.known[0], Filter::new());
            (self.known[1], self.day) = (day, slot);
        }
    }

    /// Tests whether a key is known now; `None` while all keys are.
    pub(super) fn known(&self, slot: u32, digests: RandomState) -> Option<KnownKeys> {
        let mut known = self.known[0].clone();
        known.add_all(&self.known[1]);
        let is_known = move |key: KeyRef<'_>| known.has(digests.hash_one(key));
        (slot.saturating_sub(self.begun) >= LEARNING).then(|| Arc::new(is_known) as _)
    }
}

impl Filter {
    fn new() -> Self {
        Self(vec![0; usize::try_from(BITS / 64).unwrap_or(0)].into())
    }

    fn add(&mut self, digest: u64) {
        bits(digest).for_each(|(word, bit)| self.0[word] |= bit);
    }

    fn has(&self, digest: u64) -> bool {
        bits(digest).all(|(word, bit)| self.0[word] & bit != 0)
    }

    fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }
}

/// The words and bits of a key, all derived from two hashes (Kirsch, Mitzenmacher: "Less hashing, same performance", 2006).
fn bits(digest: u64) -> impl Iterator<Item = (usize, u64)> {
    let (one, two) = (digest & 0xFFFF_FFFF, digest >> 32 | 1);
    (0..PER_KEY).map(move |nth| {
        let at = (one + nth * two) % BITS;
        (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
    })
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Key;

    use super::*;

    /// The number of keys of a day that a history finds.
    fn taken(keys: u64) -> (u64, u64) {
        let (digests, mut history) = (RandomState::default(), KeyHistory::new(0));
        let digest = |index: u64| digests.hash_one(Key::from(index).as_ref());
        (0..keys).for_each(|index| history.see(digest(index)));
        (1..=2).for_each(|minute| history.turn(minute * MINUTE, false));
        let known = history.known(LEARNING, digests.clone()).expect("it has learned for an hour");
        let count = |from: u64, until: u64| {
            let all = (from..until).filter(|index| known(Key::from(*index).as_ref()));
            u64::try_from(all.count()).unwrap()
        };
        (count(0, keys), count(keys, keys + 10_000))
    }

    #[test]
    fn all_keys_that_came_are_known_and_one_in_a_hundred_others() {
        let (known, mistaken) = taken(50_000);
        assert_eq!(known, 50_000);
        assert!(mistaken < 200, "{mistaken} of 10,000");
    }

    #[test]
    fn the_keys_of_the_last_minute_and_of_an_alarm_are_not_known_and_those_of_yesterday_are() {
        let (digests, mut history) = (RandomState::default(), KeyHistory::new(0));
        let key = |name: &str| digests.hash_one(Key::from(name).as_ref());
        history.see(key("yesterday"));
        history.turn(MINUTE, false);
        history.turn(DAY, false);
        history.see(key("today"));
        history.turn(DAY + MINUTE, false);
        history.turn(DAY + 2 * MINUTE, false);
        history.see(key("a moment ago"));
        history.turn(DAY + 3 * MINUTE, false);
        history.turn(DAY + 4 * MINUTE, true);
        history.see(key("in the alarm"));
        history.turn(DAY + 5 * MINUTE, true);
        let known = history.known(DAY + 5 * MINUTE, digests.clone()).unwrap();
        let is_known = |name: &str| known(Key::from(name).as_ref());
        assert!(is_known("yesterday") && is_known("today"));
        assert!(!is_known("a moment ago") && !is_known("in the alarm"));
    }

    #[test]
    fn all_are_known_in_the_first_hour() {
        assert!(KeyHistory::new(7).known(7 + LEARNING - 1, RandomState::default()).is_none());
    }
}
