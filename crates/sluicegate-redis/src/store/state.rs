//! The part of a store that limiters hold: [`RedisState`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_core::clock::Clock;
use sluicegate_core::key::KeyRef;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{
    Ask, Capabilities, DecisionFuture, Limiters, Notice, Parts, PreparedPolicy, Registry, Shared,
    SharedFuture, SharedPermits, StoreStatus, Write,
};
use sluicegate_core::{ConfigError, Key, Policy, Store};

use super::client::RedisClient;
use super::decide::Decider;
use super::key::{self, Tags};
use super::permits;
use super::prepared::Prepared;
use super::shared::SharedValue;
use super::slot::HashSlot;
use crate::connection::{Target, part_of};

/// The part that limiters hold. The connection ends with the last limiter.
pub(super) struct RedisState {
    pub(super) client: Arc<RedisClient>,
    pub(super) decider: Arc<Decider>,
    pub(super) target: Target,
    pub(super) shared: Arc<SharedValue>,
    pub(super) is_onlooker: bool,
    pub(super) tags: Tags,
    pub(super) prefix: String,
    pub(super) open: Registry<Arc<Prepared>>,
    pub(super) limiters: Limiters,
}

impl RedisState {
    /// The keys of a name and a key in one hash slot.
    pub(super) fn slot(&self, name: &str, key: KeyRef<'_>) -> HashSlot {
        let tag = self.tags.tag(key);
        HashSlot::new(Arc::clone(&self.client), key::name(&self.prefix, name, &tag), key::slot(&tag))
    }
}

impl Store for RedisState {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let capabilities = Capabilities::new().clock(self).shared(self);
        if self.client.connection.is_cluster { capabilities.parts(self) } else { capabilities }
    }

    fn notify(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Fallback => self.client.connection.start_without(),
            Notice::Listener(listener) => self.shared.listen(Arc::clone(listener)),
            _ => (),
        }
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        let (replaced, inherit) = replaces.unzip();
        let old = replaced.map(PreparedPolicy::replaced::<Arc<Prepared>>).transpose()?;
        // A higher version resets for the whole fleet: units spent under a lower version are forgotten once.
        let is_other_version =
            |old: &PreparedPolicy| policy.version().is_some() && policy.version() != old.policy().version();
        let since_us = match inherit {
            // The server's clock as known here, or the machine's clock if it is ahead: a moment that is too late still resets each
            // key once, but a moment that is too early misses keys.
            Some(Inherit::Reset) if !replaced.is_some_and(is_other_version) => {
                self.now_us().max(self.client.about_now_us()) + 1
            }
            _ => old.map_or(0, |old| old.since_us),
        };
        let replaced_us = match inherit {
            Some(inherit) if inherit != Inherit::Reset => self.now_us(),
            _ => 0,
        };
        self.open.open(policy, replaced, |policy| {
            let how = inherit.unwrap_or_default();
            let prepared = Prepared::new(&self.prefix, policy, how, since_us, replaced_us)?;
            Ok(Arc::new(Prepared { is_onlooker: self.is_onlooker, ..prepared }))
        })
    }

    fn admit(&self, policy: &PreparedPolicy) -> Result<(), ConfigError> {
        let base = policy.replaced::<Arc<Prepared>>()?;
        match policy.own() {
            Some(own) => base.under(policy, own).map(drop),
            None => Ok(()),
        }
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        self.decider.decide(asks, &self.tags)
    }

    fn status(&self) -> StoreStatus {
        let mut status = StoreStatus::default();
        // Relaxed: it is only a count.
        status.disagreements = self.client.connection.disagreements.load(Ordering::Relaxed);
        status
    }
}

impl Clock for RedisState {
    fn now_us(&self) -> u64 {
        self.client.clock_us().unwrap_or_else(|| self.shared.now_us())
    }
}

impl Parts for RedisState {
    fn parts(&self, asks: &[Ask<'_>]) -> u64 {
        let bits = asks.iter().map(|ask| 1 << part_of(key::slot(&self.tags.tag(ask.key()))));
        bits.fold(0, |all, bit: u64| all | bit)
    }
}

impl Shared for RedisState {
    fn exchange(&self, write: Option<Write<'_>>) -> SharedFuture {
        self.shared.exchange(&self.client, write)
    }

    fn share_permits(&self, permits: &Arc<dyn SharedPermits>) -> Result<(), ConfigError> {
        let slot = self.slot(permits.name(), Key::from(permits.name()).as_ref());
        permits::share(permits, slot, &self.tags);
        Ok(())
    }
}
