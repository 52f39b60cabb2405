//! A temporary change of a policy by an operator ([`Override`]), and the quotas of one key in place of its policy's ([`Quotas`]).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{LONGEST_CHANGE, Policy, PolicyMode};
use crate::clock::micros;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::Key;
use crate::quota::{IntoQuota, Quota};
use crate::time_span::TimeSpan;

/// The default lifetime of an override.
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// The longest name of an operator, in bytes.
const LONGEST_NAME: usize = 64;

/// A temporary change of a policy by an operator: other quotas, another mode or both,
/// while the rest of the policy stays.
///
/// It is put on a store by [`Overrides::put`](crate::limiter::Overrides::put).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    pub(super) policy: String,
    pub(super) key: Option<Key>,
    pub(super) new_keys: bool,
    pub(super) quotas: Vec<Quota>,
    /// The same quotas, for keys.
    pub(crate) key_quotas: Quotas,
    pub(super) mode: Option<PolicyMode>,
    pub(super) by: String,
    pub(super) until_us: u64,
    pub(super) version: u64,
}

impl Override {
    /// Begins an override of the policy of this name, by this operator: a name of at most 64 bytes, for logs and for the next operator.
    pub fn builder(policy: impl Into<String>, by: impl Into<String>) -> OverrideBuilder {
        OverrideBuilder {
            policy: policy.into(),
            key: None,
            new_keys: false,
            by: by.into(),
            quotas: Vec::new(),
            mode: None,
            ends: Ends::After(AN_HOUR),
            replaces: None,
        }
    }

    /// The name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The key whose quotas it changes, if it is not for all keys of the policy.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Whether it applies only to [new](OverrideBuilder::new_keys) keys, while all others keep the policy's own quotas.
    pub fn is_for_new_keys(&self) -> bool {
        self.new_keys
    }

    /// The quotas that replace the policy's own; empty if those stay.
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The mode that replaces the policy's own; `None` if that stays.
    pub fn mode(&self) -> Option<PolicyMode> {
        self.mode
    }

    /// The operator.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The end, in microseconds by the clock of its store, which counts from the Unix epoch unless the store was given another clock.
    pub fn until_us(&self) -> u64 {
        self.until_us
    }

    /// The version, higher than that of each earlier override of this policy. [`replacing`](OverrideBuilder::replacing) and
    /// [`withdraw`](crate::limiter::Overrides::withdraw) take this number.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Its policy, and its key if it is for a single key.
    pub(super) fn subject(&self) -> (&str, Option<&Key>) {
        (&self.policy, self.key.as_ref())
    }

    /// Whether it is in force at this moment.
    pub(crate) fn stands_at(&self, now_us: u64) -> bool {
        !self.is_withdrawal() && now_us < self.until_us
    }

    /// Whether it only records a withdrawal, and changes nothing.
    pub(crate) fn is_withdrawal(&self) -> bool {
        self.quotas.is_empty() && self.mode.is_none()
    }

    /// The record of an override that an operator has withdrawn.
    pub(crate) fn withdrawal(
        policy: &str,
        key: Option<Key>,
        by: &str,
        now_us: u64,
    ) -> Result<Self, ConfigError> {
        check_operator(by).map_err(|error| error.in_policy(policy))?;
        let (policy, by) = (policy.to_owned(), by.to_owned());
        let (quotas, key_quotas, mode) = (Vec::new(), Quotas::from(Vec::new()), None);
        let (until_us, version) = (now_us, now_us);
        Ok(Self { policy, key, new_keys: false, quotas, key_quotas, mode, by, until_us, version })
    }

    /// The policy with this change, for keys that are not new.
    pub(crate) fn changed(&self, policy: &Policy) -> Result<Policy, ConfigError> {
        let mode = self.mode.unwrap_or_else(|| policy.mode());
        if self.quotas.is_empty() || self.new_keys {
            return Ok(policy.in_mode(mode));
        }
        policy.with_quotas(&self.quotas).map(|policy| policy.in_mode(mode))
    }
}

/// `login: 10/min, shadow, by ada`, and for one key `login for 203.0.113.9: 10/min, by ada`
impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.policy)?;
        if let Some(key) = &self.key {
            write!(f, " for {}", key.shown())?;
        }
        if self.new_keys {
            f.write_str(" for new keys")?;
        }
        f.write_str(": ")?;
        for quota in &self.quotas {
            write!(f, "{quota}, ")?;
        }
        if let Some(mode) = self.mode {
            write!(f, "{mode}, ")?;
        }
        if self.is_withdrawal() {
            f.write_str("withdrawn, ")?;
        }
        write!(f, "by {}", self.by)
    }
}

/// Collects the parts of an [`Override`]; mistakes are reported when it is put.
#[derive(Clone, Debug)]
#[must_use = "an override does nothing until it is put"]
pub struct OverrideBuilder {
    pub(crate) policy: String,
    pub(crate) key: Option<Key>,
    new_keys: bool,
    by: String,
    quotas: Vec<Result<Quota, ConfigError>>,
    mode: Option<PolicyMode>,
    ends: Ends,
    /// The version of the override to replace, if any.
    pub(crate) replaces: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Ends {
    After(Duration),
    AtUs(u64),
}

crate::setters! { OverrideBuilder
    /// Adds a quota. All quotas added here together replace the policy's own. Default: the policy's own stay.
    pub fn quota(it, quota: impl IntoQuota) { it.quotas.push(quota.into_quota()) }

    /// Makes it an override for a single key, whose quotas then take precedence over those that its requests bring. Default: all keys.
    pub fn key(it, key: impl Into<Key>) { it.key = Some(key.into()) }

    /// Makes it an override for new keys, so that known keys keep the policy's quotas. Keys that bring quotas of their own keep
    /// these, too. Default: all keys.
    ///
    /// It needs a store that remembers keys: `Observed` of the crate `sluicegate-observed`, for policies that are
    /// [tightened for new keys](super::PolicyBuilder::tighten_new_keys). Elsewhere no key is new.
    pub fn new_keys(it) { it.new_keys = true }

    /// Sets whether the policy is enforced, only tried out, or off. Default: the policy's own mode.
    pub fn mode(it, mode: PolicyMode) { it.mode = Some(mode) }

    /// Sets how long it lasts, at most 30 days. Default: an hour.
    pub fn lasting(it, span: Duration) { it.ends = Ends::After(span) }

    /// Sets when it ends, in microseconds by the clock of the store: at most 30 days from now. Default: after an hour.
    pub fn until_us(it, until_us: u64) { it.ends = Ends::AtUs(until_us) }

    /// Replaces the override with this version. Default: it is put only if there is none.
    pub fn replacing(it, version: u64) { it.replaces = Some(version) }
}

impl OverrideBuilder {
    /// The override, put at this moment.
    pub(crate) fn build(&self, now_us: u64) -> Result<Override, ConfigError> {
        let refused = |problem: String| {
            Err(ConfigError::new(ConfigErrorKind::Override, problem).in_policy(&self.policy))
        };
        let here = |(index, quota): (usize, &Result<Quota, ConfigError>)| {
            quota.clone().map_err(|error| error.in_policy(&self.policy).in_quota(index))
        };
        let quotas: Vec<Quota> = self.quotas.iter().enumerate().map(here).collect::<Result<_, _>>()?;
        if quotas.is_empty() && self.mode.is_none() {
            return refused("an override that changes nothing: give it a quota or a mode".to_owned());
        }
        let of_keys = self.key.is_some() || self.new_keys;
        if self.key.is_some() && self.new_keys {
            return refused("an override of one key is not for new keys: leave out one of them".to_owned());
        }
        if of_keys && (quotas.is_empty() || self.mode.is_some()) {
            return refused(
                "an override of some keys changes their quotas: give it quotas, and leave the mode to all keys"
                    .to_owned(),
            );
        }
        check_operator(&self.by).map_err(|error| error.in_policy(&self.policy))?;
        let until_us = match self.ends {
            Ends::After(span) => now_us.saturating_add(micros(span)),
            Ends::AtUs(until_us) if until_us <= now_us => {
                return refused(format!(
                    "an override until {until_us} us is over before it begins: its store's clock shows {now_us} us"
                ));
            }
            Ends::AtUs(until_us) => until_us,
        };
        let span = Duration::from_micros(until_us - now_us);
        if span.is_zero() || span > LONGEST_CHANGE {
            let (span, longest) = (TimeSpan::from(span), TimeSpan::from(LONGEST_CHANGE));
            return refused(format!(
                "an override for {span}: use at most {longest}, and change the policy itself for longer"
            ));
        }
        let (policy, key, by) = (self.policy.clone(), self.key.clone(), self.by.clone());
        let (new_keys, mode, version) = (self.new_keys, self.mode, now_us);
        let key_quotas = quotas.clone().into();
        Ok(Override { policy, key, new_keys, quotas, key_quotas, mode, by, until_us, version })
    }
}

/// Checks the name of an operator, which goes into logs and pages.
pub(super) fn check_operator(by: &str) -> Result<(), ConfigError> {
    if (1..=LONGEST_NAME).contains(&by.len()) && !by.contains(char::is_control) {
        return Ok(());
    }
    let shown: String = by.chars().take(80).collect();
    Err(ConfigError::new(
        ConfigErrorKind::Override,
        format!(
            "{shown:?} cannot be the name of an operator: use 1 to {LONGEST_NAME} bytes without control characters"
        ),
    ))
}

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

crate::debug_as!(Quotas, quotas => quotas.0.each);

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
