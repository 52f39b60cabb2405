//! Shards against an exact model: the sum of what each of them has, and the whole policy in one place.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{Algorithm, Decision, Key, MemoryStore, Outcome, Policy, Quota, RateLimiter};
use sluicegate_fleet::Sharded;
use sluicegate_tests::memory::{answer, store_for};

use crate::support::{finest, has_burst, policy, splittable};

/// A policy in shards as two instances have it, each shard by itself, and the same policy in one place.
pub(crate) struct Played {
    pub(crate) instances: [RateLimiter; 2],
    shards: Vec<RateLimiter>,
    whole: RateLimiter,
    pub(crate) clock: ManualClock,
}

impl Played {
    pub(crate) fn new(policy: &Policy, shards: u64) -> Self {
        let (memory, clock) = store_for(256, 65_536);
        let own =
            MemoryStore::builder().table_size(256).log_entries(65_536).clock(clock.clone()).build().unwrap();
        let instance = |_| {
            let store = Sharded::builder(&memory, shards).policy(policy.name()).build().unwrap();
            RateLimiter::new(&store, policy.clone()).unwrap()
        };
        let names = (1..=shards).map(|shard| (format!("{}.{shard}of{shards}", policy.name()), 1));
        let parts = policy.split(names).unwrap().into_iter();
        Self {
            instances: [0, 1].map(instance),
            shards: parts.map(|part| RateLimiter::new(&memory, part).unwrap()).collect(),
            whole: RateLimiter::new(&own, finest(policy)).unwrap(),
            clock,
        }
    }

    /// The units that each shard has left, by quota.
    fn left_in_each(&self, key: &str) -> impl Iterator<Item = Vec<u64>> {
        self.shards.iter().enumerate().map(move |(part, shard)| {
            let decision = answer(shard.peek(Key::from(key).and(part as u64)));
            decision.quotas().iter().map(|status| status.remaining()).collect::<Vec<_>>()
        })
    }

    /// The most that one shard has left of all quotas.
    fn most(&self, key: &str) -> u64 {
        self.left_in_each(key).filter_map(|left| left.into_iter().min()).max().unwrap()
    }

    /// The units that all shards have left together, by quota.
    pub(crate) fn left(&self, key: &str) -> Vec<u64> {
        self.left_in_each(key)
            .reduce(|sum, of| sum.iter().zip(of).map(|(sum, of)| sum + of).collect())
            .unwrap()
    }

    fn check(&self, instance: usize, cost: u64) -> Decision {
        let before = self.left("k");
        let fits = self.most("k") >= cost;
        let decision = answer(self.instances[instance].check("k").cost(cost));
        assert_eq!(decision.is_allowed(), fits, "{cost} of {before:?}: {decision:?}");
        if fits {
            let whole = answer(self.whole.check("k").cost(cost));
            assert!(whole.is_allowed(), "{cost} of {before:?} are more than {whole:?}");
            let after: Vec<u64> = before.iter().map(|left| left - cost).collect();
            assert_eq!(self.left("k"), after);
            let shown = decision.quotas().iter().zip(&after);
            assert!(shown.clone().all(|(status, after)| status.remaining() <= *after), "{decision:?}");
        } else {
            let shown: Vec<u64> = decision.quotas().iter().map(|status| status.remaining()).collect();
            assert_eq!((&shown, &self.left("k")), (&before, &before), "a refusal spends nothing");
        }
        decision
    }
}

/// What comes next: a check, or time.
#[derive(Clone, Debug)]
enum Step {
    Check(usize, u64),
    UpTo(usize, u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = || prop_oneof![4 => Just(1), 3 => 1..6_u64, 1 => 6..30_u64];
    prop::collection::vec(
        prop_oneof![
            8 => (0..2_usize, cost()).prop_map(|(instance, cost)| Step::Check(instance, cost)),
            1 => (0..2_usize, cost()).prop_map(|(instance, cost)| Step::UpTo(instance, cost)),
            3 => (0..400_000_u64).prop_map(Step::Wait),
            1 => (0..20_000_000_u64).prop_map(Step::Wait),
        ],
        1..80,
    )
}

fn play(played: &Played, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Check(instance, cost) => {
                let decision = played.check(*instance, *cost);
                if decision.outcome() == Outcome::Denied {
                    follow(played, *cost, decision.retry_after().unwrap());
                }
            }
            Step::UpTo(instance, most) => {
                let granted = played.most("k").min(*most);
                let decision = answer(played.instances[*instance].check("k").up_to(*most));
                assert_eq!(decision.granted(), Some(granted), "{decision:?}");
                assert!(!decision.is_allowed() || answer(played.whole.check("k").cost(granted)).is_allowed());
            }
            Step::Wait(us) => played.clock.advance(Duration::from_micros(*us)),
        }
    }
}

/// A client that waits as long as it was told passes; of one unit it is told no more than it has to wait.
fn follow(played: &Played, cost: u64, wait: Duration) {
    if cost == 1 {
        played.clock.advance(wait - Duration::from_micros(1));
        assert!(!played.check(0, 1).is_allowed(), "a microsecond before {wait:?}");
        played.clock.advance(Duration::from_micros(1));
    } else {
        played.clock.advance(wait);
    }
    assert!(played.check(1, cost).is_allowed(), "{cost} after {wait:?}");
}

fn quotas() -> impl Strategy<Value = (Quota, u64)> {
    let quota = (5..60_u64, prop::sample::select(vec![1_000, 7_000, 60_000_u64]), 5..60_u64);
    (quota, 2..=5_u64).prop_map(|((limit, ms, burst), shards)| {
        (Quota::new(limit, Duration::from_millis(ms)).burst(burst), shards)
    })
}

fn of(algorithm: Algorithm, quota: Quota, is_double: bool) -> Policy {
    let quota = if has_burst(algorithm) { quota } else { Quota::new(quota.limit(), quota.period()) };
    let policy = policy(algorithm, quota);
    let longer = Quota::new(quota.limit() * 3, quota.period() * 5);
    let policy = if is_double { policy.and(longer).named("longer") } else { policy };
    policy.build().unwrap()
}

proptest! {
    /// A cost passes while one shard has room for it, whichever is asked; nothing passes that would not pass in one place.
    #[test]
    fn shards_admit_what_one_of_them_has_and_never_what_the_whole_would_not(
        algorithm in prop::sample::select(splittable().collect::<Vec<_>>()),
        (quota, shards) in quotas(),
        is_double in any::<bool>(),
        steps in steps(),
    ) {
        play(&Played::new(&of(algorithm, quota, is_double), shards), &steps);
    }

    #[test]
    fn what_is_given_back_comes_back_where_it_was_spent_and_never_more(
        algorithm in prop::sample::select(splittable().collect::<Vec<_>>()),
        (quota, shards) in quotas(),
        costs in prop::collection::vec((1..9_u64, 1..9_u64), 1..20),
    ) {
        let policy = of(algorithm, quota, false).with_refunds();
        let played = Played::new(&policy, shards);
        let before = played.left("k");
        let mut receipts = Vec::new();
        for (cost, _) in &costs {
            receipts.extend(answer(played.instances[0].check("k").cost(*cost)).take_receipt(0));
        }
        for (receipt, (_, part)) in receipts.iter_mut().zip(&costs) {
            let left = played.left("k")[0];
            let given = receipt.cost().min(*part);
            let _ = answer(played.instances[1].refund("k", *part).of(receipt));
            prop_assert_eq!(played.left("k")[0], left + given);
            let _ = answer(played.instances[0].refund("k", u64::MAX).of(receipt));
            let _ = answer(played.instances[0].refund("k", u64::MAX).of(receipt));
        }
        prop_assert_eq!(played.left("k"), before);
    }
}
