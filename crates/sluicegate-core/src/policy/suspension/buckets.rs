//! The buckets of a suspension, as policies of the same store.

use super::names::{ENDINGS, LONGEST, SHORTEST};
use super::terms::{Suspension, SuspensionTerms};
use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::policy::{OnFull, OnOutage, Policy, PolicyBuilder};
use crate::quota::Quota;

/// The bucket of keys that are suspended everywhere. No policy of a user can have a name that begins with a dot.
const EVERYWHERE: &str = ".suspended";

impl Policy {
    /// The buckets that count a key's refusals and its suspensions, if this policy suspends keys by itself.
    pub(crate) fn strikes(&self) -> Result<Option<[Self; 2]>, ConfigError> {
        let Some(terms) = self.suspension().and_then(|suspension| suspension.terms) else {
            return Ok(None);
        };
        let SuspensionTerms { after, within, remembers, .. } = terms;
        let strikes =
            PolicyBuilder::new(self.beside(ENDINGS[0]), Algorithm::SlidingLog, Ok(Quota::new(after, within)));
        let most = terms.most_suspensions();
        let log = Ok(Quota::new(most, remembers));
        let suspensions =
            PolicyBuilder::new(self.beside(ENDINGS[2]), Algorithm::SlidingLog, log).debt_up_to(most);
        Ok(Some([self.bucket(strikes)?, self.bucket(suspensions)?]))
    }

    /// The policy whose debt is the rest of a key's suspension, one unit for each millisecond. For authors of stores.
    ///
    /// # Errors
    /// When its name is too long or taken.
    pub fn suspended(&self) -> Result<Self, ConfigError> {
        let name = self.beside(ENDINGS[1]);
        self.bucket(Self::debt_of_time(name))
    }

    /// The policy that keeps suspensions across all policies of a store, if this policy takes part in them. For authors of stores.
    ///
    /// # Errors
    /// As [`suspended`](Self::suspended).
    pub fn suspended_everywhere(&self) -> Result<Option<Self>, ConfigError> {
        if !self.suspension().is_some_and(Suspension::is_everywhere) {
            return Ok(None);
        }
        // Equal for all policies, whatever their settings for outages and keys.
        Self::debt_of_time(EVERYWHERE.to_owned()).on_outage(OnOutage::Allow).assembled().map(Some)
    }

    /// The name of the policy that counts how often a key was suspended, if this policy keeps the rest of suspensions. For authors
    /// of stores.
    pub fn counts_suspensions_in(&self) -> Option<String> {
        let base = self.name.strip_suffix(ENDINGS[1])?;
        Some(format!("{base}{}", ENDINGS[2]))
    }

    fn debt_of_time(name: String) -> PolicyBuilder {
        let units = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
        let quota = Ok(Quota::new(1, SHORTEST));
        PolicyBuilder::new(name, Algorithm::Gcra, quota).debt_up_to(units).on_full(OnFull::Keep)
    }

    fn beside(&self, ending: &str) -> String {
        let own = self.suspension().and_then(Suspension::name);
        format!("{}{ending}", own.unwrap_or(&self.name))
    }

    fn bucket(&self, mut bucket: PolicyBuilder) -> Result<Self, ConfigError> {
        // If the policy itself refuses or admits without asking, there is nothing to add.
        bucket.settings.on_outage = match self.on_outage() {
            OnOutage::Local | OnOutage::Quota(_) => OnOutage::Local,
            OnOutage::Allow | OnOutage::Deny => OnOutage::Allow,
        };
        (bucket.settings.keys, bucket.settings.version) = (self.table_size(), self.version());
        bucket.assembled()
    }
}
