//! One limit, several sizes: [`Tiers`].

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use sluicegate_core::policy::Quotas;
use sluicegate_core::{ConfigError, Quota, RateLimiter};

use crate::key::text::config_error;
use crate::limits::quotas::{Pick, Which};

/// Named sizes of one limit, such as the plans of a service: each tier has quotas, or is unlimited.
///
/// [`Limit::tiered`](crate::Limit::tiered) sets the tier of a request. The tiers are sizes of one policy, so a key that changes its
/// tier keeps its spent units, as [`RateLimiter::with_quotas`] describes. Cheap to clone; clones share the same buckets. Limits in
/// several layers may use the same tiers, and then spend from the same buckets; for an endpoint with a part of each plan, use
/// a [`share`](Self::share).
///
/// # When not to use it
/// If each key has numbers of its own, such as a row of a database, use [`Limit::quota_by`](crate::Limit::quota_by).
#[derive(Clone)]
pub struct Tiers(Arc<TierTable>);

struct TierTable {
    base: RateLimiter,
    limiters: Vec<RateLimiter>,
    /// Each tier's limiter; `None` if it is unlimited.
    tiers: Vec<(String, Option<usize>)>,
    unknown: Unknown<usize>,
}

/// The treatment of a request with an unknown tier.
#[derive(Clone, Copy)]
enum Unknown<T> {
    /// It is in this tier.
    Is(T),
    Refused(StatusCode),
}

impl Tiers {
    /// Starts building tiers that share the keys and buckets of this limiter.
    pub fn builder(limiter: &RateLimiter) -> TiersBuilder {
        TiersBuilder { base: limiter.clone(), tiers: Vec::new(), unknown: None }
    }

    /// A copy of the tiers with `parts` of `whole` of each limit and burst, in buckets of their own: the share of a costly
    /// endpoint in every plan. The policy `api` becomes `api.<suffix>`; the tiers keep their names, and unlimited tiers
    /// stay unlimited.
    ///
    /// # Errors
    /// As [`Policy::share`](sluicegate_core::Policy::share), and when the store does not support a shared policy.
    pub fn share(&self, parts: u64, whole: u64, suffix: &str) -> Result<Self, ConfigError> {
        let TierTable { base, limiters, tiers, unknown } = &*self.0;
        let share = |limiter: &RateLimiter| {
            let policy = limiter.policy();
            policy.share(format!("{}.{suffix}", policy.name()), parts, whole)
        };
        let open = |limiter| RateLimiter::new(Arc::clone(base.store()), share(limiter)?);
        let shared = open(base)?;
        let each = limiters.iter().map(|limiter| match limiter.is(base) {
            true => {
                let quotas: Vec<Quota> = share(limiter)?.quotas().iter().map(|quota| quota.quota()).collect();
                shared.with_quotas(quotas)
            }
            false => open(limiter),
        });
        let limiters = each.collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(TierTable { base: shared, limiters, tiers: tiers.clone(), unknown: *unknown })))
    }

    /// The limiter of a tier, to inspect its buckets; `None` if it is unlimited or there is no such tier.
    pub fn limiter(&self, tier: &str) -> Option<&RateLimiter> {
        let (_, limiter) = self.0.tiers.iter().find(|(name, _)| name == tier)?;
        limiter.map(|index| &self.0.limiters[index])
    }

    /// The names of the tiers, in the order of their addition.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.tiers.iter().map(|(name, _)| &**name)
    }

    pub(crate) fn limiters(&self) -> &[RateLimiter] {
        &self.0.limiters
    }

    /// The name of the tier with the limiter at this index.
    pub(super) fn name_of(&self, place: usize) -> Option<&str> {
        self.0.tiers.iter().find(|(_, limiter)| *limiter == Some(place)).map(|(name, _)| &**name)
    }

    /// The limiter of the tier of this name, or the treatment of unknown tiers.
    pub(crate) fn find(&self, name: Option<&str>) -> Pick {
        let TierTable { tiers, unknown, .. } = &*self.0;
        let found = name.and_then(|name| tiers.iter().position(|(tier, _)| tier == name));
        match (found, *unknown) {
            (Some(index), _) | (None, Unknown::Is(index)) => {
                tiers[index].1.map_or(Pick::Unlimited, |place| Pick::Limiter(Which::Known(place)))
            }
            (None, Unknown::Refused(status)) => Pick::Refused(status),
        }
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.0
                    .tiers
                    .iter()
                    .map(|(name, limiter)| (name, limiter.map(|index| &self.0.limiters[index]))),
            )
            .finish()
    }
}

/// Collects the parts of [`Tiers`]; [`build`](Self::build) reports mistakes.
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct TiersBuilder {
    base: RateLimiter,
    tiers: Vec<(String, Result<Option<RateLimiter>, ConfigError>)>,
    unknown: Option<Unknown<String>>,
}

impl TiersBuilder {
    /// Adds a tier with these quotas in place of the policy's, such as `"1000/min"` or `Quota::per_minute(1000)`. They may
    /// be the policy's own.
    pub fn tier<Q>(mut self, name: impl Into<String>, quotas: Q) -> Self
    where
        Q: TryInto<Quotas>,
        ConfigError: From<Q::Error>,
    {
        let limiter = self.base.with_quotas(quotas).map(Some);
        self.tiers.push((name.into(), limiter));
        self
    }

    /// Adds a tier with a policy of its own on the same store, for example with another algorithm. It has separate keys: a client that
    /// moves to such a tier starts afresh.
    pub fn tier_with(mut self, name: impl Into<String>, limiter: RateLimiter) -> Self {
        self.tiers.push((name.into(), Ok(Some(limiter))));
        self
    }

    /// Adds an unlimited tier: its requests are not checked and carry no rate limit fields.
    pub fn unlimited(mut self, name: impl Into<String>) -> Self {
        self.tiers.push((name.into(), Ok(None)));
        self
    }

    /// Sets the tier of requests with an unknown tier.
    pub fn default_tier(mut self, name: impl Into<String>) -> Self {
        self.unknown = Some(Unknown::Is(name.into()));
        self
    }

    /// Refuses requests with an unknown tier, with this status.
    pub fn reject_unknown(mut self, status: StatusCode) -> Self {
        self.unknown = Some(Unknown::Refused(status));
        self
    }

    /// Checks the parts and puts them together.
    ///
    /// # Errors
    /// Quotas that the policy cannot have; no limited tier; tiers of several policies that
    /// [suspend](sluicegate_core::policy::PolicyBuilder::suspend) keys, unless all of them do so
    /// [under one name](sluicegate_core::policy::PolicyBuilder::suspend_as); two tiers of one name, or two policies of one; a limiter on
    /// another store; and no treatment for unknown tiers.
    pub fn build(self) -> Result<Tiers, ConfigError> {
        let fail = |message: String| Err(config_error(message));
        let Self { base, tiers: given, unknown } = self;
        let (mut limiters, mut tiers) = (Vec::<RateLimiter>::new(), Vec::<(String, Option<usize>)>::new());
        for (name, limiter) in given {
            let limiter = limiter?;
            if tiers.iter().any(|(other, _)| *other == name) {
                return fail(format!("there are two tiers called {name:?}: give each a name of its own"));
            }
            if let Some(limiter) =
                limiter.as_ref().filter(|limiter| !Arc::ptr_eq(limiter.store(), base.store()))
            {
                let policy = limiter.policy();
                return fail(format!(
                    "the limiter of tier {name:?} is on another store than its tiers: open {:?} on that one",
                    policy.name()
                ));
            }
            tiers.push((name, limiter.as_ref().map(|_| limiters.len())));
            limiters.extend(limiter);
        }
        if let Some((one, other)) = suspended_apart(&limiters) {
            return fail(format!(
                "tiers {:?} and {:?} suspend keys apart, so that a client evades it by a change of its tier: give both the same name with `suspend_as`",
                one.policy().name(),
                other.policy().name()
            ));
        }
        if limiters.is_empty() {
            return fail("tiers without a quota limit nothing: add one with `tier`".to_owned());
        }
        let unknown = match unknown {
            Some(Unknown::Refused(status)) => Unknown::Refused(status),
            Some(Unknown::Is(name)) => match tiers.iter().position(|(tier, _)| *tier == name) {
                Some(index) => Unknown::Is(index),
                None => {
                    return fail(format!(
                        "the default tier {name:?} is not among the tiers: {}",
                        listed(&tiers)
                    ));
                }
            },
            None => {
                return fail(format!(
                    "nothing is said of requests whose tier is not known: use `default_tier` with one of {}, or `reject_unknown`",
                    listed(&tiers)
                ));
            }
        };
        Ok(Tiers(Arc::new(TierTable { base, limiters, tiers, unknown })))
    }
}

/// Two tiers that count refusals separately.
fn suspended_apart(limiters: &[RateLimiter]) -> Option<(&RateLimiter, &RateLimiter)> {
    let suspends = |limiter: &&RateLimiter| {
        limiter
            .with_policy(|policy| policy.suspension().is_some_and(|suspension| suspension.after().is_some()))
    };
    let name =
        |limiter: &RateLimiter| limiter.with_policy(|policy| policy.suspension()?.name().map(str::to_owned));
    let mut each = limiters.iter().filter(suspends);
    let first = each.next()?;
    let other =
        each.find(|other| !other.is(first) && (name(first).is_none() || name(other) != name(first)))?;
    Some((first, other))
}

fn listed(tiers: &[(String, Option<usize>)]) -> String {
    tiers.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

sluicegate_core::debug_as!(TiersBuilder { tiers });
