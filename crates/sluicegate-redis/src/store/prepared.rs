//! A policy as the store prepares it: [`Prepared`].
//!
//! Preparing sends nothing. Redis learns a policy from its first decision, because each order
//! carries the text of the rules. So instances with different rules can share keys.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use sluicegate_core::algorithm::Rule;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{OwnQuotas, PreparedPolicy};
use sluicegate_core::support::lock;
use sluicegate_core::{ConfigError, Policy};

use super::{encode, key};

/// A prepared policy: the data that all its asks share.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The beginning of the names of its keys.
    pub(super) stem: String,
    /// See [`encode::numbers`].
    pub(super) numbers: Vec<u8>,
    /// See [`encode::text`].
    pub(super) text: Vec<u8>,
    pub(super) rules: Vec<Rule>,
    /// The number of the [`Inherit`](sluicegate_core::limiter::Inherit) for keys with states under other rules, in the script's numbering.
    pub(super) way: u8,
    /// The moment, in microseconds, before which spends are forgotten; 0 if the policy was never reset as a whole.
    pub(super) since_us: u64,
    /// The moment, in microseconds, as of which keys continue from states under other rules; 0 for that of their last change.
    replaced_us: u64,
    pub(super) gives_back: bool,
    /// Whether spends are final: keys bring quotas of their own, and there is no account of refunds, so it is unknown by which quotas a
    /// spend has drained.
    pub(super) is_final: bool,
    /// Whether refused requests spend as well.
    pub(super) counts_rejected: bool,
    /// Whether its peeks write nothing.
    pub(super) is_onlooker: bool,
    /// Whether keys may bring quotas of their own.
    pub(super) takes_quotas: bool,
    /// Whether a quota has periods of a calendar. Redis knows only the borders around this moment, which are part of the numbers.
    pub(super) has_calendar: bool,
    /// The policy with the borders at these moments, in microseconds.
    current: Mutex<Option<(Range<u64>, Arc<Self>)>>,
}

impl Prepared {
    pub(super) fn new(
        prefix: &str,
        policy: &Policy,
        inherit: Inherit,
        since_us: u64,
        replaced_us: u64,
    ) -> Result<Self, ConfigError> {
        encode::check(policy)?;
        let rules = rules(policy);
        Ok(Self {
            stem: key::stem(prefix, policy.name()),
            numbers: encode::numbers(&rules, 0, replaced_us),
            text: encode::text(policy, &rules),
            has_calendar: has_calendar(policy),
            current: Mutex::default(),
            rules,
            way: match inherit {
                Inherit::Reset => 0,
                Inherit::AsIs => 1,
                Inherit::Proportional => 2,
                Inherit::Additive => 3,
                _ => 4,
            },
            since_us,
            replaced_us,
            gives_back: policy.gives_back(),
            is_final: policy.takes_quotas() && !policy.gives_back(),
            counts_rejected: policy.counts_rejected(),
            is_onlooker: false,
            takes_quotas: policy.takes_quotas(),
        })
    }

    /// This policy with the quotas that a key brings. Made once.
    ///
    /// # Errors
    /// When the script does not support the quotas.
    pub(super) fn under(&self, policy: &PreparedPolicy, own: &OwnQuotas) -> Result<Arc<Self>, ConfigError> {
        own.prepared(policy, || {
            encode::check(own.policy())?;
            let rules = rules(own.policy());
            Ok(Self {
                stem: self.stem.clone(),
                numbers: encode::numbers(&rules, 0, self.replaced_us),
                text: encode::text(own.policy(), &rules),
                has_calendar: has_calendar(own.policy()),
                current: Mutex::default(),
                rules,
                ..*self
            })
        })
    }

    /// This policy at this moment, in microseconds: the borders change if a quota has periods of a calendar.
    pub(super) fn at(self: &Arc<Self>, now_us: impl Fn() -> u64) -> Arc<Self> {
        if !self.has_calendar {
            return Arc::clone(self);
        }
        let now_us = now_us();
        let mut current = lock(&self.current);
        match &*current {
            Some((moments, prepared)) if moments.contains(&now_us) => Arc::clone(prepared),
            _ => {
                let prepared = Arc::new(Self {
                    stem: self.stem.clone(),
                    numbers: encode::numbers(&self.rules, now_us, self.replaced_us),
                    text: self.text.clone(),
                    rules: self.rules.clone(),
                    current: Mutex::default(),
                    ..**self
                });
                *current = Some((self.around(now_us), Arc::clone(&prepared)));
                prepared
            }
        }
    }

    /// The moments around this one at which all quotas are in the same periods.
    fn around(&self, now_us: u64) -> Range<u64> {
        let borders = self.rules.iter().flat_map(|rule| rule.borders(now_us));
        borders.fold(0..u64::MAX, |around, border_us| match border_us <= now_us {
            true => around.start.max(border_us)..around.end,
            false => around.start..around.end.min(border_us),
        })
    }

    pub(super) fn of_onlooker(self, is_onlooker: bool) -> Self {
        Self { is_onlooker, ..self }
    }
}

fn rules(policy: &Policy) -> Vec<Rule> {
    policy.quotas().iter().map(|quota| *quota.rule()).collect()
}

fn has_calendar(policy: &Policy) -> bool {
    policy.quotas().iter().any(|quota| quota.quota().calendar().is_some())
}
