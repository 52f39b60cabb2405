//! Quotas that operators have given to single keys or to new keys for a time: [`Given`].
//!
//! They are [overrides](super::Overrides) with a [key](crate::policy::OverrideBuilder::key), or for
//! [new keys](crate::policy::OverrideBuilder::new_keys), and belong to the policy in force, so that a limiter with a policy that was never
//! replaced does not look for overrides.

use std::sync::{Arc, OnceLock};

use super::handle::{InForce, Pinned, RateLimiter};
use super::view::LimiterView;
use crate::error::ConfigError;
use crate::key::KeyRef;
use crate::policy::{Board, Override, Policy, Quotas};
use crate::store::{KnownKeys, Limiters};

/// The keys of a policy that have quotas from an operator.
#[derive(Default)]
pub(super) struct Given {
    /// Single keys, in their order.
    keys: Vec<GivenKey>,
    new_keys: Option<NewKeys>,
}

/// The keys that have appeared since the override began.
struct NewKeys {
    given: GivenKey,
    /// `None` if all keys are known.
    known: Option<KnownKeys>,
}

struct GivenKey {
    over: Arc<Override>,
    quotas: Quotas,
    /// The limiter's policy under these quotas, if possible: for limiters that follow every replacement, and for limiters pinned by rules.
    made: [OnceLock<Option<Arc<Pinned>>>; 2],
}

impl Given {
    /// The single keys of a policy that have such quotas at this moment.
    pub(super) fn of(board: &Board, policy: &str, now_us: u64) -> Self {
        Self { keys: board.all_given(policy, now_us).map(GivenKey::of).collect(), new_keys: None }
    }

    /// Adds the new keys, if the override of the policy is for them. The known keys stay the same while the override is in force.
    pub(super) fn with_new_keys(
        self,
        over: Option<&Arc<Override>>,
        before: &Self,
        (policy, limiters): (&Policy, &Limiters),
    ) -> Self {
        let over = over.filter(|over| over.is_for_new_keys());
        let new_keys = over.map(|over| NewKeys {
            given: GivenKey::of(over),
            known: match &before.new_keys {
                Some(before) if before.given.over == *over => before.known.clone(),
                _ => limiters.known_keys(policy),
            },
        });
        Self { new_keys, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.new_keys.is_none()
    }

    /// The overrides, in an order that is the same for equal ones.
    pub(super) fn overrides(&self) -> impl Iterator<Item = &Arc<Override>> {
        let new_keys = self.new_keys.iter().map(|new_keys| &new_keys.given);
        self.keys.iter().chain(new_keys).map(|given| &given.over)
    }

    /// The override of this key, or the override for new keys if the key is new and brings no quotas of its own.
    fn of_key(&self, key: KeyRef<'_>, brings_quotas: bool, now_us: u64) -> Option<&GivenKey> {
        let single = || {
            let key = key.to_key();
            let place = self.keys.binary_search_by(|given| given.over.key().cmp(&Some(&key))).ok()?;
            self.keys.get(place)
        };
        let is_known = |known: &Option<KnownKeys>| known.as_ref().is_none_or(|known| known(key));
        let new = || self.new_keys.as_ref().filter(|new| !brings_quotas && !is_known(&new.known));
        let single = if self.keys.is_empty() { None } else { single() };
        let given = single.or_else(|| new().map(|new| &new.given));
        given.filter(|given| given.over.stands_at(now_us))
    }
}

impl GivenKey {
    fn of(over: &Arc<Override>) -> Self {
        let quotas = over.quotas().to_vec().into();
        Self { over: Arc::clone(over), quotas, made: Default::default() }
    }
}

impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        self.overrides().eq(other.overrides())
    }
}

impl LimiterView<'_> {
    /// As [`given`](super::ForLayers::given), after a replacement by this policy.
    pub(super) fn given_in(self, in_force: &InForce, key: KeyRef<'_>) -> Option<RateLimiter> {
        let is_given = self.pinned.is_some_and(|pinned| pinned.is_given);
        let brings_quotas = self.pinned.is_some_and(|pinned| pinned.quotas.is_some());
        // A request that began under other rules is decided by those rules.
        let epoch = self.epoch();
        let is_other = epoch.is_some_and(|epoch| epoch != in_force.epoch);
        if in_force.given.is_empty() || is_given || is_other {
            return None;
        }
        let GivenKey { quotas, made, .. } =
            in_force.given.of_key(key, brings_quotas, self.handle.store.now_us())?;
        let made = &made[usize::from(epoch.is_some())];
        let pinned = made.get_or_init(|| match self.under_given(quotas) {
            Ok(pinned) => Some(Arc::new(pinned)),
            Err(error) => {
                warn(quotas, &error);
                None
            }
        });
        Some(RateLimiter(Arc::clone(self.handle), Some(Arc::clone(pinned.as_ref()?))))
    }
}

#[cfg(feature = "tracing")]
fn warn(quotas: &Quotas, error: &ConfigError) {
    tracing::error!(%quotas, %error, "a key cannot have the quotas that an operator has given it: those of the policy decide");
}

#[cfg(not(feature = "tracing"))]
fn warn(_: &Quotas, _: &ConfigError) {}
