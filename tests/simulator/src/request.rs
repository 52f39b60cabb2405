//! A request from its beginning to its entry in the log: [`Request`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::check_all;
use sluicegate_core::store::{DecidedBy, DecisionFuture};
use sluicegate_core::{Decision, Key, RateLimiter};

use crate::fleet::Limits;
use crate::log::{Asked, Log};
use crate::server::Server;
use crate::time::Skewed;

/// A request that is under way, with all that is needed to write down what becomes of it.
pub(crate) struct Request {
    pub(crate) asked: Asked,
    pub(crate) limiters: Limits,
    /// The shared store without a network between.
    pub(crate) server: Option<Limits>,
    /// The shared store's and the instance's.
    pub(crate) clocks: (Arc<Server>, Skewed),
    /// When it was asked, by both.
    pub(crate) began: (u64, u64),
    pub(crate) log: Arc<Mutex<Log>>,
    /// After this time it gives back what it has spent.
    pub(crate) refund: Option<Duration>,
}

impl Asked {
    /// Asks these limits together.
    pub(crate) fn check(&self, limiters: &Limits) -> DecisionFuture {
        let keys: Vec<Key> = self.keys.iter().map(|key| Key::from(*key as u64)).collect();
        check_all(limiters.iter().zip(&keys).map(|(limiter, key)| limiter.check(key).cost(self.units)))
    }
}

/// Whether the answer is there, and allows.
pub(crate) fn is_allowed(answer: impl IntoFuture<IntoFuture = DecisionFuture>) -> bool {
    answer.into_future().now().is_ok_and(|answer| answer.is_ok_and(|decision| decision.is_allowed()))
}

impl Request {
    /// Asks; somebody else waits for the answer.
    pub(crate) fn begin(mut self) {
        self.began = (self.clocks.0.time_us(), self.clocks.1.now_us());
        match self.asked.check(&self.limiters).now() {
            Ok(answer) => self.answered(answer.ok()),
            Err(pending) => drop(tokio::spawn(async { self.answered(pending.await.ok()) })),
        }
    }

    fn answered(self, answer: Option<Decision>) {
        let (by_store, own) = (self.clocks.0.time_us(), self.clocks.1.now_us());
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut decision) = answer else {
            log.failed += 1;
            return;
        };
        let entry = log.decide(&self.asked, &decision, [self.began.0, by_store], [self.began.1, own]);
        if !decision.is_allowed() && decision.decided_by() != DecidedBy::Fallback && self.has_room() {
            *log.wrongly.entry(decision.decided_by()).or_default() += 1;
        }
        drop(log);
        let (Some(entry), Some(after)) = (entry, self.refund) else { return };
        let receipts: Option<Vec<_>> =
            (0..self.asked.keys.len()).map(|ask| decision.take_receipt(ask)).collect();
        let Some(receipts) = receipts else { return };
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            self.log.lock().unwrap_or_else(PoisonError::into_inner).strike(&entry, self.clocks.1.now_us());
            let each = self.limiters.iter().zip(&self.asked.keys).zip(receipts);
            for ((limiter, key), mut receipt) in each {
                // Lost, it is not repeated.
                let _ = limiter.refund(*key as u64, self.asked.units).of(&mut receipt).await;
            }
        });
    }

    /// Whether the shared store would let this request pass now.
    fn has_room(&self) -> bool {
        let Some(server) = &self.server else { return false };
        let would_pass = |(limiter, key): (&RateLimiter, &usize)| {
            is_allowed(limiter.peek(*key as u64).cost(self.asked.units))
        };
        server.iter().zip(&self.asked.keys).all(would_pass)
    }
}
