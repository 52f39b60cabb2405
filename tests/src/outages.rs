//! A store that fails, hangs and comes back, behind `Resilient`.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{
    Ask, Capabilities, DecisionFuture, Limiters, Mode, Notice, Parts, PreparedPolicy,
};
use sluicegate_core::{
    ConfigError, Decision, Key, MemoryStore, OnOutage, Policy, RateLimiter, Store, StoreError,
};
use sluicegate_resilient::Resilient;
use sluicegate_resilient::{BreakerSettings, ResilientBuilder};

/// It answers.
pub const WORKS: u8 = 0;
/// It fails at once.
pub const FAILS: u8 = 1;
/// It never answers.
pub const HANGS: u8 = 2;
/// It says that the asks are wrong.
pub const ERRS: u8 = 3;
/// It fails for calls that only charge.
pub const CHARGES_NOTHING_ALONE: u8 = 4;
/// The same, and it takes a while to.
pub const CHARGES_NOTHING_ALONE_AND_LATE: u8 = 5;

/// A memory store that can be made to fail.
pub struct Flaky {
    store: Arc<dyn Store>,
    mood: AtomicU8,
    calls: AtomicU32,
    limiters: Limiters,
}

impl Store for Flaky {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        self.store.open(policy, replaces)
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let only_charges = asks.iter().all(|ask| ask.mode() == Mode::Charge);
        let unavailable = || StoreError::new(StoreErrorKind::Unavailable);
        match self.mood.load(Ordering::Relaxed) {
            CHARGES_NOTHING_ALONE | CHARGES_NOTHING_ALONE_AND_LATE if !only_charges => {
                self.store.decide(asks)
            }
            CHARGES_NOTHING_ALONE_AND_LATE => {
                let error = unavailable();
                DecisionFuture::pending(async {
                    tokio::task::yield_now().await;
                    Err(error)
                })
            }
            FAILS | CHARGES_NOTHING_ALONE => {
                DecisionFuture::ready(Err(unavailable().in_part(self.parts(asks).trailing_zeros() as usize)))
            }
            HANGS => DecisionFuture::pending(pending()),
            ERRS => DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::ForeignPolicy))),
            _ => self.store.decide(asks),
        }
    }

    fn admit(&self, policy: &PreparedPolicy) -> Result<(), ConfigError> {
        self.store.admit(policy)
    }

    fn notify(&self, notice: &Notice<'_>) {
        if let Notice::Replaced { .. } = notice {
            self.store.notify(notice);
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::new().parts(self)
    }
}

impl Parts for Flaky {
    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        parts_by_number(asks)
    }
}

/// Keys that are numbers below 64 live in that part, all others in the first.
pub fn parts_by_number(asks: &[Ask<'_>]) -> u64 {
    asks.iter().fold(0, |parts, ask| {
        let key = ask.key().to_key();
        parts | (0..64).find(|part| key == Key::from(*part)).map_or(1, |part: u64| 1 << part)
    })
}

/// A store that fails on demand, behind `Resilient`, on a clock that a test turns.
pub struct Scene {
    /// The store that fails.
    pub flaky: Arc<Flaky>,
    /// `Resilient` around it.
    pub store: Resilient,
    /// The clock of both.
    pub clock: ManualClock,
}

impl Scene {
    /// One of four instances, configured like this.
    pub fn new(configure: impl FnOnce(ResilientBuilder) -> ResilientBuilder) -> Self {
        let clock = ManualClock::new();
        let flaky = Arc::new(Flaky {
            store: memory(&clock).into(),
            mood: AtomicU8::new(WORKS),
            calls: AtomicU32::new(0),
            limiters: Limiters::default(),
        });
        let store = configure(instance(&flaky, &clock)).build().unwrap();
        Self { flaky, store, clock }
    }

    /// Another process of the same service, such as the one that follows this one.
    pub fn another(&self) -> Resilient {
        instance(&self.flaky, &self.clock).build().unwrap()
    }

    /// Makes the store behave like this from now on.
    pub fn mood(&self, mood: u8) {
        self.flaky.mood.store(mood, Ordering::Relaxed);
    }

    /// Counts the calls that reached the store.
    pub fn calls(&self) -> u32 {
        self.flaky.calls.load(Ordering::Relaxed)
    }

    /// A limiter of 100 an hour that says this of outages.
    pub fn limiter(&self, on_outage: OnOutage) -> RateLimiter {
        Policy::fixed_window("api", "100/h").on_outage(on_outage).on(&self.store).unwrap()
    }

    /// Turns the clock.
    pub fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build().unwrap()
}

fn instance(flaky: &Arc<Flaky>, clock: &ManualClock) -> ResilientBuilder {
    let builder = Resilient::builder(Arc::clone(flaky) as Arc<dyn Store>);
    let builder = builder.fallback(memory(clock)).clock(clock.clone()).replicas(4);
    builder.breaker(BreakerSettings::new().ramp(Duration::ZERO))
}

/// Counts how many of these calls pass.
pub fn admitted(limiter: &RateLimiter, key: &str, calls: u32) -> usize {
    (0..calls).filter(|_| now(limiter.check(key)).is_allowed()).count()
}

/// The decision, which is there at once.
pub fn now(verdict: impl IntoFuture<IntoFuture = DecisionFuture>) -> Decision {
    verdict.into_future().now().expect("nothing here has to be waited for").expect("outages are survived")
}
