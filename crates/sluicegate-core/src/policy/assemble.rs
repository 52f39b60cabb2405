//! Builds a [`Policy`] from its parts, or reports their mistakes.

use super::builder::PolicyBuilder;
use super::name::check_name;
use super::settings::PolicySettings;
use super::suspension::{Suspension, check_ending, is_of_suspension};
use super::{MAX_QUOTAS, OnFull, OnOutage, Policy, PolicyQuota};
use crate::algorithm::Rule;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;

/// The most keys that a table can be made for.
pub(crate) const MOST_KEYS: usize = 1 << 31;

impl PolicyBuilder {
    /// Checks the parts and puts them together.
    ///
    /// # Errors
    /// A name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}` or with an ending reserved for [suspensions](Self::suspend), an impossible
    /// suspension, more than 16 quotas, room for 0 keys or more than 2^31, two quotas with one label in headers,
    /// and everything that [`Rule::new`] refuses. The message names the value and what would be accepted.
    pub fn build(self) -> Result<Policy, ConfigError> {
        check_name("policy name", &self.name)?;
        check_ending(&self.name)?;
        if let Some(counted_as) = &self.settings.counted_as {
            check_name("name that a policy is counted as", counted_as)
                .map_err(|error| error.in_policy(&self.name))?;
        }
        self.assembled()
    }

    /// [`build`](Self::build) without the check of the name.
    pub(super) fn assembled(self) -> Result<Policy, ConfigError> {
        self.with_tightening()?.put_together()
    }

    /// [`assembled`](Self::assembled) of parts whose tightening is checked.
    pub(super) fn put_together(mut self) -> Result<Policy, ConfigError> {
        let is_of_suspension = is_of_suspension(&self.name);
        let suspension = self.suspension.take().map(|draft| draft.build(&self.name));
        let suspension = suspension.transpose().map_err(|error| error.in_policy(&self.name))?;
        let room = MAX_QUOTAS - suspension.as_ref().map_or(0, Suspension::buckets);
        if (room + 1..=MAX_QUOTAS).contains(&self.quotas.len()) {
            let problem = format!(
                "a policy of {} quotas leaves no room for its suspension: use {room} quotas at most",
                self.quotas.len()
            );
            return Err(self.error(ConfigErrorKind::TooManyQuotas, problem).in_quota(MAX_QUOTAS - 1));
        }
        if self.quotas.is_empty() {
            let problem = "a policy without a quota: give it one, as 5/min".to_owned();
            return Err(self.error(ConfigErrorKind::Policy, problem));
        }
        if self.quotas.len() > MAX_QUOTAS {
            let problem = format!("a policy of {} quotas: at most {MAX_QUOTAS} fit", self.quotas.len());
            return Err(self.error(ConfigErrorKind::TooManyQuotas, problem).in_quota(MAX_QUOTAS));
        }
        let algorithm_of = |quota: &Result<Quota, ConfigError>| {
            quota.as_ref().ok().and_then(Quota::algorithm).unwrap_or(self.algorithm)
        };
        let queue = self.quotas.iter().position(|(_, quota)| algorithm_of(quota).is_queue());
        if let Some(queue) = queue.filter(|_| self.quotas.len() > 1) {
            let problem = "a queue has one quota, because it spaces its output in one way: put the others into policies of their own";
            return Err(self
                .error(ConfigErrorKind::QueueOfSeveral, problem.to_owned())
                .in_quota(queue.max(1)));
        }
        if let Some(keys) = self.settings.keys.filter(|keys| !(1..=MOST_KEYS).contains(keys)) {
            let problem = format!("it cannot have room for {keys} keys: use 1 to {MOST_KEYS}");
            return Err(self.error(ConfigErrorKind::Policy, problem));
        }
        let mut quotas: Vec<PolicyQuota> = Vec::with_capacity(self.quotas.len());
        let single = self.quotas.len() == 1;
        // The policy takes the algorithm of its first quota, and other quotas name theirs only if it differs, however
        // they were written: so policies that decide alike are equal.
        let first = algorithm_of(&self.quotas[0].1);
        for (index, (id, quota)) in self.quotas.iter().enumerate() {
            let here = |error: ConfigError| error.in_policy(&self.name).in_quota(index);
            let algorithm = algorithm_of(quota);
            let quota = quota.clone().map_err(here)?;
            let quota = quota.with_algorithm(Some(algorithm).filter(|own| *own != first));
            let rule = Rule::new(algorithm, quota).map_err(here)?;
            if rule.begins() && self.settings.on_full == OnFull::Inherit {
                let problem = format!(
                    "{quota} starts a key that is not known with less than its burst, so none can inherit what another owes: use `on_full` forget, or leave the start out"
                );
                return Err(here(ConfigError::new(ConfigErrorKind::Policy, problem)));
            }
            let rule = self.settings.debt.map_or(rule, |units| rule.with_debt(units));
            let rule = if self.settings.is_part { rule.rounding_up() } else { rule };
            let label = match id {
                Some(id) => {
                    check_name("quota id", id).map_err(here)?;
                    format!("{}.{id}", self.name)
                }
                None if single => self.name.clone(),
                None => format!("{}.{}", self.name, period_label(quota)),
            };
            if quotas.iter().any(|other| other.label == label) {
                let problem = format!(
                    "two of its quotas are called {label:?} in headers: give one a name of its own with `named`"
                );
                return Err(here(ConfigError::new(ConfigErrorKind::SameLabel, problem)));
            }
            quotas.push(PolicyQuota { quota, algorithm, rule, id: id.clone(), label });
        }
        if let OnOutage::Quota(quota) = self.settings.on_outage {
            Self { algorithm: first, ..self.clone() }.alone(quota)?;
        }
        Ok(Policy {
            name: self.name,
            algorithm: first,
            quotas,
            settings: self.settings,
            suspension,
            is_of_suspension,
        })
    }

    /// This policy with only one quota, by which a process decides in an outage.
    pub(super) fn alone(self, quota: Quota) -> Result<Policy, ConfigError> {
        let settings = PolicySettings { on_outage: OnOutage::Local, tightening: None, ..self.settings };
        let alone = Self { quotas: vec![(None, Ok(quota))], settings, suspension: None, ..self };
        let name = alone.name.clone();
        alone.assembled().map_err(|error| {
            let problem = format!("in an outage, by {quota}: {}", error.problem());
            ConfigError::new(error.kind(), problem).in_policy(&name)
        })
    }

    fn error(&self, kind: ConfigErrorKind, problem: String) -> ConfigError {
        ConfigError::new(kind, problem).in_policy(&self.name)
    }
}

/// `5/30s` is called `30s`, `100/min` `1min`, `1000/month in Asia/Seoul` `1month`.
fn period_label(quota: Quota) -> String {
    if let Some(period) = quota.calendar() {
        return format!("1{}", period.to_string().split(' ').next().unwrap_or_default());
    }
    let text = Quota::new(1, quota.period()).to_string();
    let period = text.trim_start_matches("1/");
    if period.starts_with(|c: char| c.is_ascii_digit()) { period.to_owned() } else { format!("1{period}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_one_policy_are_told_apart() {
        let policy = Policy::gcra("payment", "5/min").and("2/10s").and("100/d").named("day").build().unwrap();
        let labels: Vec<_> = policy.quotas().iter().map(PolicyQuota::label).collect();
        assert_eq!(labels, ["payment.1min", "payment.10s", "payment.day"]);
        assert_eq!(policy.to_string(), "payment: 5/min, 2/10s, 100/d (gcra)");
        let twins = Policy::gcra("payment", "5/min").and("7/60s").build().unwrap_err().to_string();
        assert!(twins.contains("\"payment.1min\"") && twins.contains("named"), "{twins}");
    }

    #[test]
    fn a_bad_name_or_quota_is_named() {
        for name in ["", "Ü", "a b", "Log in", "-x", &"x".repeat(65)] {
            let message = Policy::gcra(name, "5/min").build().unwrap_err().to_string();
            assert!(message.contains("cannot be a policy name"), "{message}");
        }
        let message = Policy::gcra("login", "five/min").build().unwrap_err().to_string();
        assert!(message.starts_with("policy \"login\": \"five/min\" is not a quota"), "{message}");
    }
}
