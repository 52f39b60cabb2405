//! Quotas that operators have given to single keys for a time: [`Given`].
//!
//! They are [overrides](super::Overrides) with a [key](crate::policy::OverrideBuilder::key), and belong to the policy in force, so that a
//! limiter whose policy was never replaced does not look for them.

use std::sync::{Arc, OnceLock};

use super::handle::{InForce, Pinned, RateLimiter};
use crate::error::ConfigError;
use crate::key::KeyRef;
use crate::policy::{Board, Override, Quotas};

/// The keys of a policy that have quotas from an operator, in their order.
#[derive(Default)]
pub(super) struct Given(Vec<GivenKey>);

struct GivenKey {
    over: Arc<Override>,
    quotas: Quotas,
    /// The limiter's policy under these quotas, if it can have them: for limiters that follow every replacement, and for those that rules have pinned.
    made: [OnceLock<Option<Arc<Pinned>>>; 2],
}

impl Given {
    /// Those of a policy that are in force at this moment.
    pub(super) fn of(board: &Board, policy: &str, now_us: u64) -> Self {
        let standing = board.all_given(policy, now_us);
        let given = standing.map(|over| GivenKey {
            over: Arc::clone(over),
            quotas: over.quotas().to_vec().into(),
            made: Default::default(),
        });
        Self(given.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of_key(&self, key: KeyRef<'_>, now_us: u64) -> Option<&GivenKey> {
        let key = key.to_key();
        let place = self.0.binary_search_by(|given| given.over.key().cmp(&Some(&key))).ok()?;
        self.0.get(place).filter(|given| given.over.stands_at(now_us))
    }
}

impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().map(|given| &given.over).eq(other.0.iter().map(|given| &given.over))
    }
}

impl RateLimiter {
    /// This limiter under the quotas that an operator has given this key for a time, by an [override](super::Overrides) of the key alone;
    /// `None` if the key has none. They come before quotas that the key brings.
    ///
    /// A check of the key looks for them by itself. Middleware calls this to show the numbers that decide.
    ///
    /// ```
    /// use sluicegate_core::limiter::Overrides;
    /// use sluicegate_core::policy::Override;
    /// use sluicegate_core::{Key, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let api = Policy::gcra("api", "10/min").on(&store)?;
    /// Overrides::of(&store).put(Override::builder("api", "ada").key("acme").quota("20/min")).await?;
    /// assert_eq!((api.check("acme").await?.capacity(), api.check("other").await?.capacity()), (20, 10));
    /// let acme = api.given(Key::from("acme").as_ref()).ok_or("it has")?;
    /// assert_eq!(acme.policy().to_string(), "api: 20/min (gcra)");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn given(&self, key: KeyRef<'_>) -> Option<Self> {
        match self.kept() {
            Some(_) => None,
            None => self.given_in(&self.in_force(), key),
        }
    }

    /// As [`given`](Self::given), after a replacement by this policy.
    pub(super) fn given_in(&self, in_force: &InForce, key: KeyRef<'_>) -> Option<Self> {
        let is_given = self.1.as_ref().is_some_and(|pinned| pinned.is_given);
        // A request that began under other rules is decided by these.
        let epoch = self.epoch();
        let is_other = epoch.is_some_and(|epoch| epoch != in_force.epoch);
        if in_force.given.is_empty() || is_given || is_other {
            return None;
        }
        let GivenKey { quotas, made, .. } = in_force.given.of_key(key, self.0.store.now_us())?;
        let made = &made[usize::from(epoch.is_some())];
        let pinned = made.get_or_init(|| match self.under_given(quotas) {
            Ok(own) => own.1,
            Err(error) => {
                warn(quotas, &error);
                None
            }
        });
        pinned.as_ref().map(|pinned| Self(Arc::clone(&self.0), Some(Arc::clone(pinned))))
    }
}

#[cfg(feature = "tracing")]
fn warn(quotas: &Quotas, error: &ConfigError) {
    tracing::error!(%quotas, %error, "a key cannot have the quotas that an operator has given it: those of the policy decide");
}

#[cfg(not(feature = "tracing"))]
fn warn(_: &Quotas, _: &ConfigError) {}
