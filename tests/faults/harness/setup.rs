//! How a service under test is set up, and what a fault excuses.

use std::time::Duration;

use sluicegate_redis::{RedisStore, RedisStoreBuilder};
use sluicegate_resilient::BreakerSettings;

use super::Rig;

/// How a service under test is set up; the defaults are those of the library.
pub(crate) struct Setup {
    pub(super) url: String,
    pub(super) redis: RedisStoreBuilder,
    pub(super) deadline: Duration,
    pub(super) replicas: u64,
    pub(super) breaker: BreakerSettings,
    pub(super) is_bare: bool,
    pub(super) is_connected: bool,
    pub(super) ledger: Option<String>,
}

impl Setup {
    pub(crate) fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            redis: RedisStore::builder(),
            deadline: Duration::from_millis(50),
            replicas: 1,
            breaker: BreakerSettings::new(),
            is_bare: false,
            is_connected: true,
            ledger: None,
        }
    }

    /// The service begins without its store.
    pub(crate) fn unconnected(mut self) -> Self {
        self.is_connected = false;
        self
    }

    pub(crate) fn deadline(mut self, deadline: Duration) -> Self {
        self.redis = self.redis.deadline(deadline);
        self
    }

    pub(crate) fn replicas(mut self, replicas: u64) -> Self {
        self.replicas = replicas;
        self
    }

    pub(crate) fn breaker(mut self, breaker: BreakerSettings) -> Self {
        self.breaker = breaker;
        self
    }

    /// Where the ledger is in the end, if it is elsewhere.
    pub(crate) fn ledger_at(mut self, url: String) -> Self {
        self.ledger = Some(url);
        self
    }

    /// Without the wrapper that is under test, to see that it is what keeps the promises.
    pub(crate) fn bare(mut self) -> Self {
        self.is_bare = true;
        self
    }

    /// Starts it and the load, and waits until all is as it should be before a fault.
    pub(crate) fn start(self) -> Rig {
        Rig::start(self)
    }
}

/// What a fault excuses; nothing unless said.
#[derive(Clone, Copy)]
pub(crate) struct Excuse {
    /// How often the server lost its state, or went back to an older one.
    pub(crate) losses: u64,
    /// Calls whose answers were lost otherwise than by coming too late: executed, and charged again.
    pub(crate) lost_answers: u64,
    /// Time that the servers among themselves need on top, after the healing.
    pub(crate) later_by: Duration,
    /// Tasks more than before, as when a cluster has other nodes now.
    pub(crate) tasks: usize,
    /// It went so well that no request needed the fallback.
    pub(crate) unnoticed: bool,
    /// The server's clock was changed, and with it how much of a month has passed for the ledger.
    pub(crate) clock: bool,
    /// How long the runtime was kept from running at once.
    pub(crate) blocked: Duration,
    /// Other instances spend from the same keys, so that the scenario has to add up by itself.
    pub(crate) shared: bool,
}

pub(crate) const NOTHING: Excuse = Excuse {
    losses: 0,
    lost_answers: 0,
    later_by: Duration::ZERO,
    tasks: 2,
    unnoticed: false,
    clock: false,
    blocked: Duration::ZERO,
    shared: false,
};
