//! A spend at once is a check without its numbers: whatever stands around the store, and whatever happens in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::algorithm::Refill;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::{Inherit, Receipt};
use sluicegate_core::policy::{PolicyBuilder, PolicyMode};
use sluicegate_core::store::{Ask, DecisionFuture, Event};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Algorithm, Decision, Policy, Quota, RateLimiter, Store, StoreError};
use sluicegate_fleet::{DenyCache, leased::Leased};
use sluicegate_observed::{Observed, PolicySnapshot, Totals};
use sluicegate_resilient::BreakerSettings;
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::store_on;
use sluicegate_tests::random::Random;
use sluicegate_tests::time::on_the_hour;

/// What stands around the store in memory.
const AROUND: [&str; 6] = ["nothing", "observed", "resilient", "deny cache", "leases", "all of them"];

/// All units come back at once.
const EACH: Algorithm = Algorithm::TokenBucket(Refill::Interval);

const KEYS: [&str; 2] = ["ada", "eve"];

/// The policies, and whether there is anything to be certain of: on memory alone, and under one quota that it decides by a look.
fn policies() -> [(&'static str, bool, PolicyBuilder); 11] {
    let api = || Policy::gcra("api", "8/10s");
    [
        ("one quota", true, api()),
        ("a window", true, Policy::fixed_window("api", "8/10s")),
        ("one that counts refused requests", true, api().count_rejected()),
        ("one whose keys start short", false, Policy::gcra("api", "8/10s start 3")),
        ("an interval whose keys start short", false, Policy::builder("api", EACH, "8/10s start 3")),
        ("one in shadow", true, api().mode(PolicyMode::Shadow)),
        ("two quotas", false, api().and("20/30s").named("second")),
        ("one that gives back", false, api().refunds()),
        ("one that suspends", true, api().suspend(3, "1min", "20s")),
        ("one that waits", false, api().wait_up_to(Duration::from_secs(1))),
        ("a log", false, Policy::sliding_log("api", "8/10s")),
    ]
}

/// One of two services of which the same is asked.
struct Service {
    limiter: RateLimiter,
    clock: ManualClock,
    is_away: Arc<AtomicBool>,
    /// Whether its keys start with less than a burst.
    starts: bool,
    observed: Option<Observed>,
    told: Arc<AtomicU64>,
    receipt: Option<(&'static str, Receipt)>,
    /// Requests whose policy was not off, and those of them that were certain at once.
    asked: u64,
    certain: u64,
}

impl Service {
    fn new(kind: &str, policy: PolicyBuilder, name: &str) -> Self {
        let (clock, is_away) = (on_the_hour(), Arc::new(AtomicBool::new(false)));
        let (told, mut observed) = (Arc::new(AtomicU64::new(0)), None);
        let mut store: Arc<dyn Store> = store_on(clock.clone()).into();
        let has = |one: &str| kind == one || kind == "all of them";
        if has("resilient") {
            let away = Arc::clone(&is_away);
            let flaky =
                around(store, move |within: &Within, asks: &[Ask<'_>]| match away.load(Ordering::Relaxed) {
                    true => DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::Unavailable).unsent())),
                    false => within.decide(asks),
                });
            let breaker = BreakerSettings::new().ramp(Duration::ZERO).jitter(0);
            let resilient = Resilient::builder(flaky).fallback(store_on(clock.clone())).breaker(breaker);
            store = resilient.clock(clock.clone()).replicas(2).build().unwrap().into();
        }
        if has("leases") {
            store = Leased::builder(store).clock(clock.clone()).build().unwrap().into();
        }
        if has("deny cache") {
            store = DenyCache::builder(store).clock(clock.clone()).build().unwrap().into();
        }
        if has("observed") {
            let front = Observed::named(name, store).unwrap();
            let count = Arc::clone(&told);
            front.listen(move |event: &Event<'_>| {
                if matches!(event, Event::Consumed { .. } | Event::Delayed { .. } | Event::Rejected { .. }) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            store = (&front).into();
            observed = Some(front);
        }
        let limiter = policy.on(store).unwrap();
        let starts = limiter.policy().quotas()[0].quota().start().is_some();
        Self { limiter, clock, is_away, starts, observed, told, receipt: None, asked: 0, certain: 0 }
    }

    /// Asks for this much, at once first if it may be; says whether it passes.
    fn request(&mut self, at_once: bool, key: &'static str, cost: u64) -> bool {
        self.asked += u64::from(self.limiter.policy().mode() != PolicyMode::Off);
        if at_once && self.limiter.spend_at_once(key, cost) {
            self.certain += 1;
            self.receipt = None;
            return true;
        }
        let mut decision = now(self.limiter.check_cost(key, cost));
        self.receipt = decision.take_receipt(0).map(|receipt| (key, receipt));
        decision.is_allowed()
    }

    /// Another thing that happens, the same to both.
    fn happens(&mut self, step: u64, random: &mut Random, by_receipt: bool) {
        let key = KEYS[random.index(2)];
        match step {
            0 => self.is_away.store(random.below(2) == 0, Ordering::Relaxed),
            1 => {
                let quota: Quota = ["8/10s", "5/10s", "12/20s"][random.index(3)].parse().unwrap();
                let quota = if self.starts { quota.starting_with(random.below(6)) } else { quota };
                let how = [Inherit::Spent, Inherit::AsIs, Inherit::Reset][random.index(3)];
                let policy = self.limiter.policy();
                let mut quotas: Vec<_> = policy.quotas().iter().map(|quota| quota.quota()).collect();
                quotas[0] = quota;
                self.limiter.replace(policy.with_quotas(&quotas).unwrap(), how).unwrap();
            }
            2 => {
                let mode = [PolicyMode::Enforce, PolicyMode::Shadow, PolicyMode::Off][random.index(3)];
                self.limiter.replace(self.limiter.policy().in_mode(mode), Inherit::Spent).unwrap();
            }
            3 => drop(self.limiter.suspend(key, Duration::from_secs(1 + random.below(20))).now()),
            4 => drop(self.limiter.release(key).now()),
            5 => drop(self.limiter.charge(key, 1 + random.below(3)).now()),
            6 => drop(self.limiter.reset(key).now()),
            9 => self.limiter.reset_all().unwrap(),
            7 | 8 => match &mut self.receipt {
                Some((key, receipt)) if by_receipt => drop(self.limiter.refund_of(receipt, *key, 1).now()),
                _ => drop(self.limiter.refund(key, 1).now()),
            },
            _ => self.clock.advance(Duration::from_millis([1, 400, 2_500, 9_000][random.index(4)])),
        }
    }

    /// Where both keys stand, as far as anybody sees it.
    fn stands(&self) -> String {
        let each = KEYS.map(|key| {
            let decision = now(self.limiter.peek(key));
            // By the machine's clock, if nobody was asked.
            (decision.outcome(), decision.decided_by(), decision.quotas().to_vec())
        });
        format!("{each:?}")
    }

    fn counted(&self) -> Option<PolicySnapshot> {
        self.observed.as_ref()?.snapshot().policies.into_iter().find(|of| of.policy.name() == "api")
    }
}

fn requests(totals: &Totals) -> u64 {
    let Totals { allowed, delayed, rejected, impossible, suspended, error, .. } = totals;
    allowed + delayed + rejected + impossible + suspended + error
}

fn now(decision: DecisionFuture) -> Decision {
    decision.now().expect("all of it is in memory").expect("outages are survived")
}

/// Outages and the fallback, listeners and counts, caches and leases, replacements, modes, suspensions, several quotas and refunds:
/// after each step both services pass the same and stand where the other one does, and each request is counted and told once.
#[tokio::test]
async fn a_request_that_is_asked_at_once_first_is_decided_and_counted_as_one_that_is_checked() {
    for kind in AROUND {
        for (number, (title, may_be_certain, policy)) in policies().into_iter().enumerate() {
            let mut certain = 0;
            for seed in 0..8 {
                let [mut one, mut other] = ["at-once", "checked"].map(|name| {
                    Service::new(
                        kind,
                        policy.clone(),
                        &format!("{name}-{kind}-{number}-{seed}").replace(' ', "-"),
                    )
                });
                let mut random = Random::new(seed);
                for step in 0..150 {
                    let at = format!("{kind}, {title}, seed {seed}, step {step}");
                    if random.below(3) == 0 {
                        let (what, mut same) = (random.below(15), random.clone());
                        let by_receipt = one.receipt.is_some() && other.receipt.is_some();
                        one.happens(what, &mut same, by_receipt);
                        other.happens(what, &mut random, by_receipt);
                    } else {
                        let (key, cost) = (KEYS[random.index(2)], [1, 1, 1, 2, 0, 9][random.index(6)]);
                        assert_eq!(one.request(true, key, cost), other.request(false, key, cost), "{at}");
                    }
                    // What is owed to the store is charged in the background.
                    tokio::task::yield_now().await;
                    assert_eq!(one.stands(), other.stands(), "{at}");
                }
                assert_eq!(one.counted().map(|of| of.totals), other.counted().map(|of| of.totals));
                for service in [&one, &other] {
                    let counted = service.counted().map(|of| requests(&of.totals));
                    assert!(
                        counted.is_none_or(|counted| counted == service.asked),
                        "{kind}, {title}, seed {seed}"
                    );
                }
                assert_eq!(one.told.load(Ordering::Relaxed), other.told.load(Ordering::Relaxed));
                certain += one.certain;
            }
            let is_certain = may_be_certain && kind == "nothing";
            assert!(if is_certain { certain > 8 } else { certain == 0 }, "{kind}, {title}: {certain}");
        }
    }
}
