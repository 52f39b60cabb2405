//! A temporary change of a policy by an operator: [`Override`].

use std::fmt;
use std::time::Duration;

use super::{LONGEST_CHANGE, Policy, PolicyMode, Quotas};
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
    pub(super) key_quotas: Quotas,
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

    /// The quotas, for the keys of the override.
    pub(crate) fn key_quotas(&self) -> &Quotas {
        &self.key_quotas
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
    policy: String,
    key: Option<Key>,
    new_keys: bool,
    by: String,
    quotas: Vec<Result<Quota, ConfigError>>,
    mode: Option<PolicyMode>,
    ends: Ends,
    replaces: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Ends {
    After(Duration),
    AtUs(u64),
}

impl OverrideBuilder {
    /// Adds a quota. All quotas added here together replace the policy's own. Default: the policy's own stay.
    pub fn quota(mut self, quota: impl IntoQuota) -> Self {
        self.quotas.push(quota.into_quota());
        self
    }

    /// Makes it an override for a single key, whose quotas then take precedence over those that its requests bring. Default: all keys.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes it an override for new keys, so that known keys keep the policy's quotas. Keys that bring quotas of their own keep
    /// these, too. Default: all keys.
    ///
    /// It needs a store that remembers keys: `Observed` of the crate `sluicegate-observed`, for policies that are
    /// [tightened for new keys](super::PolicyBuilder::tighten_new_keys). Elsewhere no key is new.
    pub fn new_keys(mut self) -> Self {
        self.new_keys = true;
        self
    }

    /// Sets whether the policy is enforced, only tried out, or off. Default: the policy's own mode.
    pub fn mode(mut self, mode: PolicyMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets how long it lasts, at most 30 days. Default: an hour.
    pub fn lasting(mut self, span: Duration) -> Self {
        self.ends = Ends::After(span);
        self
    }

    /// Sets when it ends, in microseconds by the clock of the store: at most 30 days from now. Default: after an hour.
    pub fn until_us(mut self, until_us: u64) -> Self {
        self.ends = Ends::AtUs(until_us);
        self
    }

    /// Replaces the override with this version. Default: it is put only if there is none.
    pub fn replacing(mut self, version: u64) -> Self {
        self.replaces = Some(version);
        self
    }

    /// The name of the policy.
    pub(crate) fn policy(&self) -> &str {
        &self.policy
    }

    /// The key that it is for, if it is for one.
    pub(crate) fn for_key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The version of the override to replace, if any.
    pub(crate) fn replaces(&self) -> Option<u64> {
        self.replaces
    }

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
