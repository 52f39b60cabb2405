//! A policy as the store prepares it: [`Prepared`].
//!
//! Preparing sends nothing. Redis gets to know a policy by its first decision, because each order
//! carries the text of the rules. So instances with different rules can share keys.

use std::sync::Arc;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{OwnQuotas, PreparedPolicy};
use sluicegate_core::{ConfigError, Policy};

use super::{encode, key};

/// A prepared policy: everything that all its asks have in common.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The beginning of the names of its keys.
    pub(super) stem: String,
    /// See [`encode::rules`].
    pub(super) text: Vec<u8>,
    pub(super) rules: Vec<Rule>,
    /// The number of the [`Inherit`](sluicegate_core::limiter::Inherit) for keys that were under other rules before, as the script has it.
    pub(super) way: u8,
    /// The moment, in microseconds, before which spends are forgotten; 0 if the policy was never reset as a whole.
    pub(super) since_us: u64,
    pub(super) gives_back: bool,
    /// Whether refused requests spend as well.
    pub(super) counts_rejected: bool,
    /// Whether its peeks write nothing.
    pub(super) is_onlooker: bool,
    /// Whether keys may bring quotas of their own.
    pub(super) takes_quotas: bool,
}

impl Prepared {
    pub(super) fn new(
        prefix: &str,
        policy: &Policy,
        inherit: Inherit,
        since_us: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            stem: key::stem(prefix, policy.name()),
            text: encode::rules(policy)?,
            rules: policy.quotas().iter().map(|quota| *quota.rule()).collect(),
            way: match inherit {
                Inherit::Reset => 0,
                Inherit::AsIs => 1,
                Inherit::Proportional => 2,
                Inherit::Additive => 3,
                _ => 4,
            },
            since_us,
            gives_back: policy.gives_back(),
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
            let numbers = own.policy();
            let rules = numbers.quotas().iter().map(|quota| *quota.rule()).collect();
            Ok(Self { stem: self.stem.clone(), text: encode::rules(numbers)?, rules, ..*self })
        })
    }

    pub(super) fn of_onlooker(self, is_onlooker: bool) -> Self {
        Self { is_onlooker, ..self }
    }
}
