//! A policy as the store prepares it: [`Prepared`].
//!
//! Preparing sends nothing. Redis learns a policy from its first decision, because each order
//! carries the text of the rules. So instances with different rules can share keys.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_core::algorithm::Rule;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{OwnQuotas, PreparedPolicy};
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
    calendar: Option<CalendarRules>,
}

/// A policy with periods of a calendar, of which Redis knows only the current ones. To the script it is a new policy when a period
/// of another length begins, its keys keep their spent units.
///
/// The script accepts any windows that share one border with the calendar. So it does not matter which side of the border its clock
/// is on, or the clock of another instance: units spent before the border count until it, and units spent after it count after it.
#[derive(Debug)]
struct CalendarRules {
    policy: Policy,
    /// The policy for the script at these moments, in microseconds.
    current: Mutex<Option<(Range<u64>, Arc<Prepared>)>>,
}

impl CalendarRules {
    fn of(policy: &Policy) -> Option<Self> {
        let has_periods = policy.quotas().iter().any(|quota| quota.quota().calendar().is_some());
        has_periods.then(|| Self { policy: policy.clone(), current: Mutex::default() })
    }

    /// The moments around this one at which all quotas are in the same periods.
    fn around(&self, now_us: u64) -> Range<u64> {
        let periods = self.policy.quotas().iter().filter_map(|quota| quota.quota().calendar());
        periods
            .map(|period| period.around(now_us))
            .fold(0..u64::MAX, |all, (start_us, end_us)| all.start.max(start_us)..all.end.min(end_us))
    }
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
        let (rules, calendar) = (rules(policy, 0), CalendarRules::of(policy));
        Ok(Self {
            stem: key::stem(prefix, policy.name()),
            numbers: encode::numbers(&rules, replaced_us),
            text: encode::text(policy, &rules),
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
            // The rules of each period are like quotas that a key brings: it continues from the last rules.
            takes_quotas: policy.takes_quotas() || calendar.is_some(),
            calendar,
        })
    }

    /// This policy with the quotas that a key brings. Made once.
    ///
    /// # Errors
    /// When the script does not support the quotas.
    pub(super) fn under(&self, policy: &PreparedPolicy, own: &OwnQuotas) -> Result<Arc<Self>, ConfigError> {
        own.prepared(policy, || {
            encode::check(own.policy())?;
            Ok(self.with_rules(own.policy(), 0, CalendarRules::of(own.policy())))
        })
    }

    /// This policy at this moment, in microseconds: it changes over time if a quota has periods of a calendar.
    pub(super) fn at(self: &Arc<Self>, now_us: impl Fn() -> u64) -> Arc<Self> {
        let Some(calendar) = &self.calendar else { return Arc::clone(self) };
        let now_us = now_us();
        let mut current = calendar.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((moments, prepared)) if moments.contains(&now_us) => Arc::clone(prepared),
            _ => {
                let prepared = Arc::new(self.with_rules(&calendar.policy, now_us, None));
                *current = Some((calendar.around(now_us), Arc::clone(&prepared)));
                prepared
            }
        }
    }

    fn with_rules(&self, policy: &Policy, now_us: u64, calendar: Option<CalendarRules>) -> Self {
        let rules = rules(policy, now_us);
        let (numbers, text) = (encode::numbers(&rules, self.replaced_us), encode::text(policy, &rules));
        Self { stem: self.stem.clone(), numbers, text, rules, calendar, ..*self }
    }

    pub(super) fn of_onlooker(self, is_onlooker: bool) -> Self {
        Self { is_onlooker, ..self }
    }
}

fn rules(policy: &Policy, now_us: u64) -> Vec<Rule> {
    policy.quotas().iter().map(|quota| quota.rule().at(now_us)).collect()
}
