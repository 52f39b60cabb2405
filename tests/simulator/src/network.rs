//! The way to the shared store: it delays, loses and parts.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{Ask, DecisionFuture};
use sluicegate_core::wrap::{OwnedAsk, Within, Wrap};
use sluicegate_core::{ConfigError, Policy, Store, StoreError};
use sluicegate_tests::random::Random;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::time::Time;

/// How long an instance waits for an answer.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// An instance's way to a shared store.
pub(crate) struct Network {
    within: Within,
    link: Arc<Link>,
}

/// What a way is like, and what has passed on it.
pub(crate) struct Link {
    /// The instance's own number, of all that ever start.
    pub(crate) number: u64,
    /// Draws the fate of each message.
    pub(crate) seed: u64,
    /// Microseconds one way, on average.
    pub(crate) delay_us: u64,
    /// Messages in 1,000 that are lost.
    pub(crate) loss: u64,
    /// The run's time.
    pub(crate) time: Time,
    /// Calls so far, of all instances.
    pub(crate) calls: Arc<AtomicU64>,
    cut: AtomicU8,
    /// The instance stands still until then.
    stands_until_us: AtomicU64,
    has_ended: AtomicBool,
}

/// How a way is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It is not.
    Whole = 0,
    /// Messages vanish.
    Silent = 1,
    /// Connections are refused, which is known at once.
    Refused = 2,
}

impl Link {
    /// A way that is whole.
    pub(crate) fn new(
        number: u64,
        seed: u64,
        (delay_us, loss): (u64, u64),
        time: &Time,
        calls: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            number,
            seed,
            delay_us,
            loss,
            time: time.clone(),
            calls: Arc::clone(calls),
            cut: AtomicU8::new(0),
            stands_until_us: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Cuts the way, or mends it.
    pub(crate) fn cut(&self, cut: Cut) {
        // Relaxed, here and below: a run has one thread.
        self.cut.store(cut as u8, Ordering::Relaxed);
    }

    /// The instance stands still until this moment of the run.
    pub(crate) fn pause(&self, until_us: u64) {
        self.stands_until_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// How long the instance stands still from now on.
    pub(crate) fn stands_for(&self) -> Duration {
        let until_us = self.stands_until_us.load(Ordering::Relaxed);
        Duration::from_micros(until_us.saturating_sub(self.time.now_us()))
    }

    /// The instance has gone: nothing that still runs in its name is heard of.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn is(&self, cut: Cut) -> bool {
        self.cut.load(Ordering::Relaxed) == cut as u8
    }

    /// Two delays, and whether a message is lost on either way. It depends on what is asked and when, and not on the order in
    /// which an instance asks: where a wrapper goes through a table in no particular order, a run is the same nevertheless.
    fn fate(&self, asks: &[Ask<'_>]) -> [Option<Duration>; 2] {
        let mut hasher = DefaultHasher::new();
        (self.seed, self.number, self.time.now_us()).hash(&mut hasher);
        for ask in asks {
            (ask.key().to_key().as_bytes(), ask.mode().number(), ask.cost()).hash(&mut hasher);
        }
        let mut random = Random::new(hasher.finish());
        [(); 2].map(|()| {
            let arrives = random.below(1_000) >= self.loss;
            // Half of it is always there, and a message in sixteen takes eight times as long.
            let tail = if random.below(16) == 0 { 8 } else { 1 };
            let delay_us = self.delay_us / 2 + random.below(self.delay_us.max(1)) * tail;
            arrives.then(|| Duration::from_micros(delay_us))
        })
    }
}

impl Network {
    /// The way to this store.
    pub(crate) fn new(store: Arc<dyn Store>, link: Arc<Link>) -> Self {
        Self { within: Within::new(store), link }
    }

    /// The call as it crosses: what is asked is decided whoever waits for it.
    fn send(
        &self,
        asks: &[Ask<'_>],
    ) -> Result<oneshot::Receiver<Result<sluicegate_core::Decision, StoreError>>, StoreError> {
        let fate = self.link.fate(asks);
        let owned = asks.iter().map(|ask| Ok(OwnedAsk::new(&self.within.ask(*ask)?)));
        let owned = owned.collect::<Result<Vec<_>, StoreError>>()?;
        let (store, link) = (Arc::clone(self.within.store()), Arc::clone(&self.link));
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let [Some(there), back] = fate else { return };
            sleep(there).await;
            if link.is(Cut::Silent) {
                return;
            }
            let asks: Vec<_> = owned.iter().map(OwnedAsk::ask).collect();
            let answer = store.decide(&asks);
            drop(asks);
            let answer = answer.await;
            let Some(back) = back else { return };
            sleep(back).await;
            sleep(link.stands_for()).await;
            if !link.is(Cut::Silent) && !link.has_ended.load(Ordering::Relaxed) {
                // Whoever asked may have gone.
                let _ = tell.send(answer);
            }
        });
        Ok(told)
    }
}

impl Wrap for Network {
    type Own = ();

    fn within(&self) -> &Within {
        &self.within
    }

    fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn ask(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        if self.link.has_ended.load(Ordering::Relaxed) {
            return DecisionFuture::pending(std::future::pending());
        }
        self.link.calls.fetch_add(1, Ordering::Relaxed);
        if self.link.is(Cut::Refused) {
            return DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::Unavailable).unsent()));
        }
        match self.send(asks) {
            Err(error) => DecisionFuture::ready(Err(error)),
            Ok(told) => DecisionFuture::pending(async {
                let answer =
                    async { if let Ok(answer) = told.await { answer } else { std::future::pending().await } };
                let late = |_| Err(StoreError::new(StoreErrorKind::Timeout));
                timeout(DEADLINE, answer).await.unwrap_or_else(late)
            }),
        }
    }
}
