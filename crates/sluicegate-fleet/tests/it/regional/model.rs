//! Regions against an exact model: what each share and the reserve have, and the whole policy in one place.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::{Decision, MemoryStore, Outcome, Policy, Quota, RateLimiter, Store};
use sluicegate_fleet::Regional;
use sluicegate_tests::memory::{answer, store_for};

use crate::support::{finest, policy, splittable};

pub(crate) const REGIONS: [(&str, u32); 3] = [("asia", 1), ("eu", 2), ("us", 3)];

/// The store of one of the regions.
pub(crate) fn regional(
    region: &str,
    own: impl Into<Arc<dyn Store>>,
    reserve: impl Into<Arc<dyn Store>>,
) -> Arc<dyn Store> {
    let builder = Regional::builder(region, own, reserve);
    let all = REGIONS.iter().rev().fold(builder, |builder, (name, weight)| builder.region(*name, *weight));
    all.build().unwrap().into()
}

/// A policy in all regions, each of its parts by itself, and the same policy in one place.
struct Played {
    regions: Vec<RateLimiter>,
    /// The shares of the regions, and the reserve.
    parts: Vec<RateLimiter>,
    whole: RateLimiter,
    clock: ManualClock,
}

impl Played {
    fn new(policy: &Policy) -> Self {
        let (reserve, clock) = store_for(64, 65_536);
        let memory = || {
            MemoryStore::builder().table_size(64).log_entries(65_536).clock(clock.clone()).build().unwrap()
        };
        let own: Vec<MemoryStore> = REGIONS.iter().map(|_| memory()).collect();
        let weights = REGIONS.iter().map(|(_, weight)| 60 * u64::from(*weight)).chain([40 * 6]);
        let parts = policy.split(weights.map(|weight| (policy.name().to_owned(), weight))).unwrap();
        let stores = own.iter().chain([&reserve]);
        let regions = REGIONS.iter().zip(&own).map(|((name, _), own)| regional(name, own, &reserve));
        Self {
            regions: regions.map(|store| RateLimiter::new(store, policy.clone()).unwrap()).collect(),
            parts: stores.zip(parts).map(|(store, part)| RateLimiter::new(store, part).unwrap()).collect(),
            whole: RateLimiter::new(memory(), finest(policy)).unwrap(),
            clock,
        }
    }

    fn left(&self, part: usize) -> u64 {
        answer(self.parts[part].peek("k")).remaining()
    }

    fn check(&self, region: usize, cost: u64) -> Decision {
        let [own, reserve] = [region, 3].map(|part| self.left(part));
        let decision = answer(self.regions[region].check("k").cost(cost));
        assert_eq!(
            decision.is_allowed(),
            cost <= own.max(reserve),
            "{cost} of {own} and {reserve}: {decision:?}"
        );
        let after = match decision.is_allowed() {
            false => (own, reserve),
            true if cost <= own => (own - cost, reserve),
            true => (own, reserve - cost),
        };
        assert_eq!((self.left(region), self.left(3)), after, "{cost} of {own} and {reserve}");
        if decision.is_allowed() {
            assert!(answer(self.whole.check("k").cost(cost)).is_allowed(), "above the whole");
        } else {
            assert_eq!(decision.remaining(), own + reserve);
        }
        decision
    }
}

proptest! {
    /// Each region uses its share, then the reserve; together they admit nothing that one place would not.
    #[test]
    fn regions_admit_their_shares_and_the_reserve_and_never_more_than_the_whole(
        algorithm in prop::sample::select(splittable().collect::<Vec<_>>()),
        limit in 20..90_u64,
        steps in prop::collection::vec((0..3_usize, prop_oneof![3 => Just(1), 1 => 2..40_u64], 0..900_000_u64), 1..80),
    ) {
        let played = Played::new(&policy(algorithm, Quota::new(limit, Duration::from_secs(7))).build().unwrap());
        for (region, cost, us) in steps {
            let decision = played.check(region, cost);
            if decision.outcome() == Outcome::Denied && us < 200_000 {
                played.clock.advance(decision.retry_after().unwrap());
                prop_assert!(played.check(region, cost).is_allowed(), "it was told that it would pass");
            }
            played.clock.advance(Duration::from_micros(if us % 3 == 0 { us } else { 0 }));
        }
    }

    #[test]
    fn what_is_given_back_comes_back_to_the_region_and_to_the_reserve(
        limit in 20..90_u64,
        costs in prop::collection::vec((0..3_usize, 1..30_u64), 1..20),
    ) {
        let policy = policy(sluicegate_core::Algorithm::Gcra, Quota::new(limit, Duration::from_secs(7)));
        let played = Played::new(&policy.refunds().build().unwrap());
        let all = || (0..4).map(|part| played.left(part)).collect::<Vec<_>>();
        let before = all();
        let mut receipts: Vec<(usize, Receipt)> = Vec::new();
        for (region, cost) in costs {
            let receipt = answer(played.regions[region].check("k").cost(cost)).take_receipt(0);
            receipts.extend(receipt.map(|receipt| (region, receipt)));
        }
        for (region, receipt) in &mut receipts {
            let (sum, half) = (all().iter().sum::<u64>(), receipt.cost() / 2);
            let _ = answer(played.regions[*region].refund("k", half).of(receipt));
            prop_assert_eq!(all().iter().sum::<u64>(), sum + half);
            let _ = answer(played.regions[*region].refund("k", u64::MAX).of(receipt));
        }
        prop_assert_eq!(all(), before);
    }
}
