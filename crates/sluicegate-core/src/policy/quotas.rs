//! The quotas of one key in place of its policy's: [`Quotas`].

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Policy;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;

/// The numbers of one key, such as a customer's plan: data that comes with a request, from a row or a claim.
///
/// There is one quota for each quota of the policy, in the same order; or each quota names the one that it replaces, by
/// its [id](super::PolicyBuilder::named) in the policy, while the others stay. As text they are separated by commas,
/// with an id before a colon. Each uses the algorithm of the quota that it replaces.
///
/// [`RateLimiter::with_quotas`](crate::RateLimiter::with_quotas) describes a key whose quotas change. Clones share the values that a
/// limiter derives from them, so cache the quotas of a row rather than its text.
///
/// ```
/// use sluicegate_core::policy::Quotas;
/// use sluicegate_core::{Policy, Quota};
///
/// let policy = Policy::gcra("api", "100/min").and("1000/d").named("day").build()?;
/// let both: Quotas = "500/min burst 50, 20000/d".parse()?;
/// let day: Quotas = "day: 20000/d".parse()?;
/// assert_eq!(policy.under(&both)?.to_string(), "api: 500/min burst 50, 20000/d (gcra)");
/// assert_eq!(policy.under(&day)?.to_string(), "api: 100/min, 20000/d (gcra)");
/// assert_eq!(Quotas::from([Quota::per_minute(500).burst(50), Quota::per_day(20_000)]), both);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Quotas(Arc<KeyNumbers>);

/// The bits of a place.
const PLACE_BITS: u32 = 14;

struct KeyNumbers {
    each: Vec<(Option<String>, Quota)>,
    /// The place at which the last limiter has kept the policy under these quotas, with the number of that limiter's places above it.
    place: AtomicU64,
}

impl Quotas {
    /// The quotas of a policy, in their order, to give them to other keys.
    pub fn of(policy: &Policy) -> Self {
        policy.quotas().iter().map(|quota| quota.quota()).collect::<Vec<_>>().into()
    }

    /// The quotas, each with the id of the quota that it replaces, if it names one.
    pub fn each(&self) -> impl Iterator<Item = (Option<&str>, Quota)> {
        self.0.each.iter().map(|(id, quota)| (id.as_deref(), *quota))
    }

    fn new(each: Vec<(Option<String>, Quota)>) -> Self {
        Self(Arc::new(KeyNumbers { each, place: AtomicU64::new(0) }))
    }

    /// The place of the policy under these quotas among the places with this number, if known.
    #[inline]
    pub(crate) fn place_in(&self, number: u64) -> Option<usize> {
        // Relaxed: a place is only read once it is filled.
        let place = self.0.place.load(Ordering::Relaxed);
        let index = usize::try_from(place % (1 << PLACE_BITS)).ok();
        index.filter(|_| place >> PLACE_BITS == number)
    }

    /// Remembers the place of the policy under these quotas among the places with this number, which is not 0.
    pub(crate) fn remember_place(&self, number: u64, place: usize) {
        self.0.place.store(number << PLACE_BITS | place as u64, Ordering::Relaxed);
    }
}

impl PartialEq for Quotas {
    fn eq(&self, other: &Self) -> bool {
        self.0.each == other.0.each
    }
}

impl Eq for Quotas {}

impl Hash for Quotas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.each.hash(state);
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Quotas").field(&self.0.each).finish()
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self::new(vec![(None, quota)])
    }
}

impl<const N: usize> From<[Quota; N]> for Quotas {
    fn from(quotas: [Quota; N]) -> Self {
        Self::new(quotas.map(|quota| (None, quota)).into())
    }
}

impl From<Vec<Quota>> for Quotas {
    fn from(quotas: Vec<Quota>) -> Self {
        Self::new(quotas.into_iter().map(|quota| (None, quota)).collect())
    }
}

impl From<&Self> for Quotas {
    fn from(quotas: &Self) -> Self {
        quotas.clone()
    }
}

impl TryFrom<&str> for Quotas {
    type Error = ConfigError;

    fn try_from(text: &str) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl TryFrom<String> for Quotas {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl FromStr for Quotas {
    type Err = ConfigError;

    /// Reads `"500/min burst 50"`, `"500/min, 20000/d"` or `"day: 20000/d"`.
    ///
    /// # Errors
    /// The error of the first [`Quota`] that cannot be read.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let each = text.split(',').enumerate().map(|(index, text)| {
            let (id, quota) = match text.split_once(':') {
                Some((id, quota)) => (Some(id.trim().to_owned()), quota),
                None => (None, text),
            };
            Ok((id, quota.trim().parse().map_err(|error: ConfigError| error.in_quota(index))?))
        });
        each.collect::<Result<_, ConfigError>>().map(Self::new)
    }
}

impl fmt::Display for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (id, quota)) in self.0.each.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            if let Some(id) = id {
                write!(f, "{id}: ")?;
            }
            write!(f, "{quota}")?;
        }
        Ok(())
    }
}

impl Policy {
    /// The policy with the quotas of a key instead of its own, by which the requests of that key are decided.
    ///
    /// # Errors
    /// When there are fewer or more quotas than in the policy, when one names a quota that the policy does not have or an
    /// algorithm that differs from that quota's, and as [`build`](super::PolicyBuilder::build) for quotas that its algorithm cannot keep.
    pub fn under(&self, quotas: &Quotas) -> Result<Self, ConfigError> {
        let mut own: Vec<Quota> = self.quotas().iter().map(|quota| quota.quota()).collect();
        let refused =
            |problem| Err(ConfigError::new(ConfigErrorKind::Policy, problem).in_policy(self.name()));
        let is_named = quotas.0.each.iter().any(|(id, _)| id.is_some());
        if !is_named && quotas.0.each.len() != own.len() {
            return refused(format!(
                "a key brings {} quotas ({quotas}), and the policy has {}: give one for each, in their order, or name them by the policy's ids",
                quotas.0.each.len(),
                own.len()
            ));
        }
        for (index, (id, quota)) in quotas.0.each.iter().enumerate() {
            let place = match id {
                _ if !is_named => Some(index),
                Some(id) => self.quotas().iter().position(|own| own.id() == Some(id)),
                None => None,
            };
            match place {
                Some(place) => {
                    let by = self.quotas()[place].algorithm();
                    if let Some(other) = quota.algorithm().filter(|other| *other != by) {
                        return refused(format!(
                            "a key brings {quota}, and the policy counts this quota by {by}: leave \"by {other}\" out, or give such keys a policy of their own"
                        ))
                        .map_err(|error: ConfigError| error.in_quota(index));
                    }
                    own[place] = quota.with_algorithm(Some(by));
                }
                None => {
                    let ids: Vec<_> = self.quotas().iter().filter_map(|quota| quota.id()).collect();
                    let (id, quota) = (id.as_deref().unwrap_or_default(), quota);
                    return refused(format!(
                        "a key brings {quota} for the quota {id:?}, which the policy does not have: use one of {ids:?}, or all quotas in their order and without names"
                    ));
                }
            }
        }
        self.with_quotas(&own)
    }
}
