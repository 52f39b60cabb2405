//! The subject of a page: [`Scope`].
//!
//! Policies are looked up by name each time: policies that are opened, replaced or closed later appear on the page or vanish from
//! it without being registered.

use std::sync::Arc;

use sluicegate_core::limiter::Overrides;
use sluicegate_core::{RateLimiter, Store};
use sluicegate_observed::Observed;
use sluicegate_tower::key::KeyForm;
use sluicegate_tower::limits::LimitsHandle;
use sluicegate_tower::room::Room;

/// The stores whose policies a page shows, the limits by which it reads requests, and the waiting rooms.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) stores: Vec<(Observed, Overrides)>,
    pub(crate) limits: Vec<(String, LimitsHandle)>,
    pub(crate) rooms: Vec<Box<dyn Room>>,
}

impl Scope {
    pub(crate) fn add(&mut self, observed: &Observed) {
        self.stores.push((observed.clone(), Overrides::of(observed)));
    }

    /// The handle of this name; if two stores have a policy of one name, the first store's.
    pub(crate) fn limiter(&self, policy: &str) -> Option<RateLimiter> {
        self.stores.iter().find_map(|(observed, _)| limiter(observed, policy))
    }

    /// The forms in which the keys of a policy are written by hand, by the limits that ask it.
    pub(crate) fn key_forms(&self, policy: &str) -> Vec<KeyForm> {
        self.limits.iter().flat_map(|(_, limits)| limits.current().key_forms(policy)).collect()
    }

    /// The overrides of the store that has the policy of this name.
    pub(crate) fn overrides_of(&self, policy: &str) -> Option<&Overrides> {
        let store = self.stores.iter().find(|(observed, _)| limiter(observed, policy).is_some());
        store.map(|(_, overrides)| overrides)
    }

    /// The waiting room of this name.
    pub(crate) fn room(&self, name: &str) -> Option<&dyn Room> {
        self.rooms.iter().find(|room| room.name() == name).map(|room| &**room)
    }

    /// The limits of this name; without a name, the only ones.
    pub(crate) fn limits_of(&self, name: Option<&str>) -> Result<&LimitsHandle, String> {
        match (name, &*self.limits) {
            (None, [(_, only)]) => Ok(only),
            (None, []) => {
                Err("this page knows no limits: add them with limits(..) where it is built".to_owned())
            }
            (None, _) => Err("say which limits the request meets".to_owned()),
            (Some(name), all) => {
                let found = all.iter().find(|(known, _)| known == name).map(|(_, limits)| limits);
                found.ok_or_else(|| format!("no limits named {name:?} are on this page"))
            }
        }
    }
}

fn limiter(observed: &Observed, policy: &str) -> Option<RateLimiter> {
    Arc::<dyn Store>::from(observed).limiters().get(policy)
}
