//! A store that reserves turns and takes them back as a test scripts it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::limiter::{Inherit, Limiters, Turn, check_all};
use crate::store::{Ask, DecisionFuture, Mode, PreparedPolicy, QuotaStatus, judge};
use crate::{Decision, Key, Policy, RateLimiter, Store};

/// The store's answer to a turn that is given up.
pub(super) enum Says {
    Taken,
    Kept,
    Lost,
    Later(oneshot::Receiver<bool>),
}

#[derive(Default)]
pub(super) struct Scripted {
    limiters: Limiters,
    script: Mutex<Script>,
}

#[derive(Default)]
pub(super) struct Script {
    /// The moments of the turns that are reserved next, in seconds from the start.
    pub(super) turns: VecDeque<u64>,
    /// The answers to the turns that are given up next; all others are taken back.
    pub(super) says: VecDeque<Says>,
    /// The turns that were given up, by their time in seconds.
    pub(super) given_up: Vec<u64>,
    /// Whether the first ask of each call counts at once.
    pub(super) counts_first: bool,
    now: u64,
}

impl Scripted {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    pub(super) fn limiter(self: &Arc<Self>, name: &str) -> RateLimiter {
        RateLimiter::new(Arc::clone(self) as Arc<dyn Store>, Policy::gcra(name, "1/s").build().unwrap())
            .unwrap()
    }

    /// A turn of these limiters at that second.
    pub(super) async fn turn(&self, at: u64, under: &[(&RateLimiter, u64)]) -> Turn {
        self.script().turns.push_back(at);
        let key = Key::from("ada");
        let checks =
            under.iter().map(|(limiter, cost)| limiter.check(&key).cost(*cost).reserve(Duration::MAX));
        let decision = check_all(checks).await.unwrap();
        Turn::new(decision, under.iter().map(|(limiter, cost)| ((*limiter).clone(), key.clone(), *cost)))
    }

    /// Later turns are reserved at that second.
    pub(super) async fn advance_to(&self, second: u64) {
        let by = second - std::mem::replace(&mut self.script().now, second);
        tokio::time::sleep(Duration::from_secs(by)).await;
    }
}

impl Store for Scripted {
    fn open(
        &self,
        policy: Arc<Policy>,
        _: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        Ok(PreparedPolicy::new(policy, Arc::new(())))
    }

    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let mut script = self.script();
        let at_us = asks[0].receipt().map_or(0, crate::limiter::Receipt::at_us);
        let passed = match asks[0].mode() {
            Mode::Return => {
                script.given_up.push(at_us / 1_000_000);
                match script.says.pop_front().unwrap_or(Says::Taken) {
                    Says::Taken => true,
                    Says::Kept => false,
                    Says::Lost => {
                        return DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::Timeout)));
                    }
                    Says::Later(answer) => {
                        return DecisionFuture::pending(async {
                            let passed =
                                answer.await.map_err(|_| StoreError::new(StoreErrorKind::Timeout))?;
                            Ok(decision(passed, 0, 0, [1]))
                        });
                    }
                }
            }
            _ => true,
        };
        let at = script.turns.pop_front().unwrap_or(script.now);
        let decision = decision(passed, script.now, at - script.now, asks.iter().map(Ask::cost));
        DecisionFuture::ready(Ok(if script.counts_first { decision.with_delays([(0, 0)]) } else { decision }))
    }
}

/// The decision of asks with these costs.
fn decision(passed: bool, now: u64, delay: u64, costs: impl IntoIterator<Item = u64>) -> Decision {
    let status = |(ask, cost)| {
        let status = QuotaStatus::at_rest((ask, 0), 1).with_remaining(0).with_reset_after_us(1_000_000);
        let wait_us = 1_000_000;
        let status = if passed { status.with_more_after_us(wait_us) } else { status.refused_for_us(wait_us) };
        status.spending(cost)
    };
    judge(now * 1_000_000, delay * 1_000_000, (0..).zip(costs).map(status))
}
