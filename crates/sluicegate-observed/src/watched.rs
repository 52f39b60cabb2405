//! Keys whose state is reported from time to time, under names: [`WatchedKeys`].

use std::sync::Mutex;

use sluicegate_core::Decision;
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::key::Key;
use sluicegate_core::limiter::Limiters;
use sluicegate_core::policy::check_name;

use super::lock::lock;

/// The most keys that are watched.
const MOST: usize = 100;

/// The keys of a store that an application wants to see.
#[derive(Default)]
pub(super) struct WatchedKeys(Mutex<Vec<WatchedKey>>);

/// Names its policy instead of holding a limiter: the limiter would keep the store alive, which owns this.
#[derive(Clone)]
struct WatchedKey {
    name: String,
    policy: String,
    key: Key,
}

/// The share of its quota that a watched key has left.
pub(super) struct RemainingRatio {
    pub(super) name: String,
    pub(super) policy: String,
    /// 0 to 1, of the quota with the least left.
    pub(super) ratio: f64,
}

impl WatchedKeys {
    pub(super) fn add(&self, name: String, policy: String, key: Key) -> Result<(), ConfigError> {
        check_name("name for a watched key", &name)?;
        let mut all = lock(&self.0);
        let wrong = |kind, problem| Err(ConfigError::new(kind, problem).in_policy(&policy));
        if all.iter().any(|watched| watched.name == name) {
            let problem = format!("another watched key is named {name:?}: give each a name of its own");
            return wrong(ConfigErrorKind::NameTaken, problem);
        }
        if all.len() >= MOST {
            let problem = format!("{name:?} is one watched key too many: watch {MOST} at most");
            return wrong(ConfigErrorKind::Store, problem);
        }
        all.push(WatchedKey { name, policy, key });
        Ok(())
    }

    /// Peeks at the watched keys of open policies; keys without an answer are left out.
    pub(super) async fn look(&self, limiters: &Limiters) -> Vec<RemainingRatio> {
        let all = lock(&self.0).clone();
        // All peeks start before the first answer is awaited.
        let asked = all.into_iter().filter_map(|watched| {
            let answer = limiters.get(&watched.policy)?.peek(&watched.key).start();
            Some((watched, answer))
        });
        let asked: Vec<_> = asked.collect();
        let mut left = Vec::with_capacity(asked.len());
        for (WatchedKey { name, policy, .. }, answer) in asked {
            // In an outage the state is unknown.
            if let Ok(decision) = answer.await
                && decision.is_counted()
            {
                left.push(RemainingRatio { name, policy, ratio: ratio(&decision) });
            }
        }
        left
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn ratio(decision: &Decision) -> f64 {
    let each =
        decision.quotas().iter().map(|quota| quota.remaining() as f64 / quota.capacity().max(1) as f64);
    each.fold(1.0, f64::min)
}
