//! The policy that decides the asks of a call: [`LimiterView`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Guard;

use super::handle::{Handle, InForce, Pinned, RateLimiter};
use crate::key::KeyRef;
use crate::store::PreparedPolicy;

/// A limiter, borrowed for one call, with the policy that it keeps or that the call brings.
#[derive(Clone, Copy)]
pub(super) struct LimiterView<'a> {
    pub(super) handle: &'a Arc<Handle>,
    pub(super) pinned: Option<&'a Arc<Pinned>>,
}

/// The policy in force, for as long as a call takes.
pub(super) enum Current<'a> {
    Kept(&'a PreparedPolicy),
    Replaced(Guard<Arc<InForce>>),
    Own(Arc<PreparedPolicy>),
}

impl<'a> LimiterView<'a> {
    /// The number of times that the policy was replaced.
    #[inline]
    pub(super) fn replacements(self) -> u64 {
        // Acquire: pairs with the release in `replace`.
        self.handle.replacements.load(Ordering::Acquire)
    }

    /// The rules that this limiter is pinned to.
    #[inline]
    pub(super) fn epoch(self) -> Option<u64> {
        self.pinned.and_then(|pinned| pinned.epoch)
    }

    #[inline]
    pub(super) fn with_opened<T>(self, use_it: impl FnOnce(&PreparedPolicy) -> T) -> T {
        match self.kept() {
            Some(kept) => use_it(kept),
            None => use_it(self.late(self.in_force()).as_opened()),
        }
    }

    /// The policy that decides an ask now.
    #[inline]
    pub(super) fn opened(self) -> Current<'a> {
        self.kept().map_or_else(|| self.late(self.in_force()), Current::Kept)
    }

    /// The policy that decides an ask of this key now.
    #[inline]
    pub(super) fn opened_for(self, key: KeyRef<'_>) -> Current<'a> {
        self.kept().map_or_else(|| self.late_for(key, |view, in_force| view.late(in_force)), Current::Kept)
    }

    /// The current policy of this key, whatever policy this limiter decides by: for reports of past events.
    #[inline]
    pub(super) fn newest_for(self, key: KeyRef<'_>) -> Current<'a> {
        self.kept().map_or_else(|| self.late_for(key, |view, in_force| view.of_keys(in_force)), Current::Kept)
    }

    /// The policy for this key after a replacement by the one in force: as `look` finds it, with the quotas that an operator has given
    /// the key if it has any.
    fn late_for(
        self,
        key: KeyRef<'_>,
        look: for<'b> fn(LimiterView<'b>, Guard<Arc<InForce>>) -> Current<'b>,
    ) -> Current<'a> {
        let in_force = self.in_force();
        match self.given_in(&in_force, key) {
            Some(own) => Current::Own(Arc::new(look(own.view(), in_force).as_opened().clone())),
            None => look(self, in_force),
        }
    }

    /// The policy that decides, if this limiter has kept it.
    #[inline]
    pub(super) fn kept(self) -> Option<&'a PreparedPolicy> {
        let replacements = self.replacements();
        match self.pinned {
            None => self.handle.remembered(replacements).map(|kept| &kept.prepared),
            Some(pinned) => (replacements == pinned.replacements).then_some(&pinned.prepared),
        }
    }

    /// The policy that decides after a replacement by this one.
    fn late(self, in_force: Guard<Arc<InForce>>) -> Current<'a> {
        match self.pinned {
            Some(pinned) if pinned.epoch.is_some_and(|epoch| epoch != in_force.epoch) => {
                Current::Kept(&pinned.prepared)
            }
            _ => self.of_keys(in_force),
        }
    }

    /// The policy in force instead of the first one. The first ask after the end of an override, of the policy or of a key, ends it.
    pub(super) fn in_force(self) -> Guard<Arc<InForce>> {
        let in_force = self.handle.current.load();
        if in_force.ends_us == u64::MAX || self.handle.store.now_us() < in_force.ends_us {
            return in_force;
        }
        self.to_limiter().end_override();
        self.handle.current.load()
    }

    /// A limiter that decides as this view does.
    pub(super) fn to_limiter(self) -> RateLimiter {
        RateLimiter(Arc::clone(self.handle), self.pinned.cloned())
    }
}

impl Current<'_> {
    #[inline]
    pub(super) fn as_opened(&self) -> &PreparedPolicy {
        match self {
            Self::Kept(opened) => opened,
            Self::Replaced(in_force) => &in_force.prepared,
            Self::Own(opened) => opened,
        }
    }
}

impl RateLimiter {
    #[inline]
    pub(super) fn view(&self) -> LimiterView<'_> {
        LimiterView { handle: &self.0, pinned: self.1.as_ref() }
    }

    #[inline]
    pub(super) fn with_opened<T>(&self, use_it: impl FnOnce(&PreparedPolicy) -> T) -> T {
        self.view().with_opened(use_it)
    }
}
