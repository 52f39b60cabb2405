//! Policies derived from a policy, with other quotas: a part for one of several instances or endpoints, or an operator's quotas.

#[cfg(feature = "limiter")]
use super::OnOutage;
use super::builder::{PolicyBuilder, PolicySettings};
use super::tightening::TighteningDraft;
use super::{Policy, PolicyQuota};
use crate::algorithm::{Algorithm, Anchor, Drain, Refill};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;

impl Policy {
    /// This policy under another name, with `parts` of `whole` of each limit and burst, rounded up: a tenth of a
    /// plan for one expensive endpoint, or the part that one of four instances may admit on its own.
    ///
    /// ```
    /// use sluicegate_core::Policy;
    ///
    /// let pro = Policy::gcra("pro", "100/min burst 25").build()?;
    /// assert_eq!(pro.share("pro.ai", 1, 10)?.to_string(), "pro.ai: 10/min burst 3 (gcra)");
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// When the share is zero or more than the whole, when the name is invalid, and when the smaller quota
    /// cannot be kept exactly.
    ///
    /// Shares are rounded up, so their sum may be above the whole: four quarters of ten are twelve. The units that a key
    /// [starts](Quota::starting_with) with are rounded down. All other settings stay.
    pub fn share(&self, name: impl Into<String>, parts: u64, whole: u64) -> Result<Self, ConfigError> {
        if parts == 0 || parts > whole {
            return Err(ConfigError::new(
                ConfigErrorKind::Policy,
                format!("a share of {parts}/{whole}: use more than nothing and at most 1"),
            )
            .in_policy(&self.name));
        }
        let part = |units: u64| u128::from(units) * u128::from(parts);
        let up = |units| u64::try_from(part(units).div_ceil(u128::from(whole))).unwrap_or(units);
        // Rounded down, because no share needs a unit to start with.
        let down = |units| u64::try_from(part(units) / u128::from(whole)).unwrap_or(units);
        self.sized(name.into(), self.settings.is_part, up, down)
    }

    /// Splits this policy into parts, each with a name and a weight, whose limits and bursts sum exactly to those of the whole: all
    /// parts together never admit more than the policy, in any span. For stores that keep one bucket in several places.
    ///
    /// Each part decides on its own, so a cost above the burst of every part passes in none of them.
    ///
    /// ```
    /// use sluicegate_core::Policy;
    ///
    /// let plan = Policy::gcra("plan", "25/min burst 7").build()?;
    /// let parts = plan.split([("plan.1".to_owned(), 1), ("plan.2".to_owned(), 1)])?;
    /// assert_eq!(parts[0].to_string(), "plan.1: 12/min burst 3 (gcra)");
    /// assert_eq!(parts[1].to_string(), "plan.2: 13/min burst 4 (gcra)");
    ///
    /// let error = Policy::gcra("plan", "1/min").build()?.split([("a".to_owned(), 1), ("b".to_owned(), 1)]);
    /// assert!(error.unwrap_err().to_string().contains("one of 2 parts would have none"));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # Rounding
    /// Part i of the weights w has `floor(L * (w1 + .. + wi) / W) - floor(L * (w1 + .. + w(i-1)) / W)` of a limit L, where W is
    /// their sum. Parts of a sliding counter round the share of the previous window up.
    ///
    /// # Errors
    /// When a part would be empty, when a name is invalid, and when parts cannot decide as the whole does: parts of a
    /// queue, which spaces its output in one place; of windows that begin with a key's first unit, which would begin at
    /// several times; of a quota with keys that [start](Quota::starting_with) with less than a burst, because only one part would know the
    /// key; and of a policy that [counts refused requests](PolicyBuilder::count_rejected), because a part would count requests that
    /// another part admits.
    pub fn split(&self, parts: impl IntoIterator<Item = (String, u64)>) -> Result<Vec<Self>, ConfigError> {
        let parts: Vec<(String, u64)> = parts.into_iter().collect();
        let refused = |problem| Err(ConfigError::new(ConfigErrorKind::Policy, problem).in_policy(&self.name));
        let reason = |quota: &PolicyQuota| match quota.algorithm {
            algorithm if algorithm.is_queue() => Some("a queue spaces its output in one place"),
            Algorithm::FixedWindow(Anchor::FirstHit) | Algorithm::TokenBucket(Refill::Interval) => {
                Some("windows that begin with a key's first unit would begin at several times")
            }
            _ if self.settings.counts_rejected => {
                Some("it counts refused requests, and no part knows of one that another part lets pass")
            }
            _ if quota.rule.begins() => Some(
                "a key that is not known starts with less than a burst, and would be known to one part and not to another",
            ),
            _ => None,
        };
        if let Some((quota, reason)) = self.quotas.iter().find_map(|quota| Some((quota, reason(quota)?))) {
            let count = parts.len();
            return refused(format!("{} cannot be split into {count} parts: {reason}", quota.algorithm));
        }
        let whole: u128 = parts.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let units = self.quotas.iter().flat_map(|quota| [quota.quota.limit(), quota.quota.burst_size()]);
        let mut before = 0;
        let cut = |units: u64, weights: u128| u128::from(units).saturating_mul(weights) / whole.max(1);
        let bounds = parts.iter().map(|(_, weight)| {
            let from = before;
            before += u128::from(*weight);
            (from, before)
        });
        let part = |(from, to): (u128, u128), units: u64| {
            u64::try_from(cut(units, to) - cut(units, from)).unwrap_or(units)
        };
        let bounds: Vec<(u128, u128)> = bounds.collect();
        if let Some(few) = units.into_iter().find(|few| bounds.iter().any(|bounds| part(*bounds, *few) == 0))
        {
            let count = parts.len();
            return refused(format!("one of {count} parts would have none of {few} units: use fewer parts"));
        }
        let named = parts.into_iter().zip(&bounds);
        let sized =
            |name, bounds| self.sized(name, true, |units| part(bounds, units), |units| part(bounds, units));
        named.map(|((name, _), bounds)| sized(name, *bounds)).collect()
    }

    /// The policy by which a process without a share decides in an outage: this policy's quotas, or its quota
    /// for outages. `None` if it allows or denies in an outage. For authors of stores.
    ///
    /// # Errors
    /// A built policy causes none, because building checks the quota for outages.
    #[cfg(feature = "limiter")]
    #[doc(hidden)]
    pub fn in_outage(&self) -> Result<Option<Self>, ConfigError> {
        match self.on_outage() {
            OnOutage::Local => Ok(Some(self.clone())),
            OnOutage::Quota(quota) => self.with(Vec::new()).alone(quota).map(Some),
            OnOutage::Allow | OnOutage::Deny => Ok(None),
        }
    }

    /// This policy under a name that users may not give.
    #[cfg(feature = "limiter")]
    pub(crate) fn called(&self, name: String) -> Self {
        Self { name, ..self.clone() }
    }

    /// Returns this policy without [`count_rejected`](crate::policy::PolicyBuilder::count_rejected). For authors of stores.
    #[must_use]
    #[doc(hidden)]
    pub fn without_count_rejected(mut self) -> Self {
        self.settings.counts_rejected = false;
        self
    }

    /// This policy under another name, with a part of each limit and burst, and of the units that a key starts with.
    fn sized(
        &self,
        name: String,
        is_part: bool,
        part: impl Fn(u64) -> u64,
        part_of_start: impl Fn(u64) -> u64,
    ) -> Result<Self, ConfigError> {
        let algorithm = match self.algorithm {
            Algorithm::LeakyBucket(Drain::QueueAbove(units)) => {
                Algorithm::LeakyBucket(Drain::QueueAbove(part(units)))
            }
            other => other,
        };
        let quotas = self.quotas.iter().map(|quota| {
            let smaller = quota.quota.with_units(part(quota.quota.limit()), part(quota.quota.burst_size()));
            let start = quota.quota.start().map(&part_of_start);
            (quota.id.clone(), Ok(start.map_or(smaller, |start| smaller.starting_with(start))))
        });
        let builder = self.with(quotas.collect());
        let is_renamed = name != self.name;
        let settings = PolicySettings { debt: self.settings.debt.map(part), is_part, ..builder.settings };
        let share = PolicyBuilder { name, algorithm, settings, ..builder };
        if is_renamed { share.build() } else { share.assembled() }
    }

    /// This policy with other quotas. They keep the ids and algorithms of its own quotas if there are as many; a quota that names
    /// another algorithm uses that one.
    ///
    /// ```
    /// use sluicegate_core::{Policy, Quota};
    ///
    /// let login = Policy::gcra("login", "5/min burst 2").on_exceeded("wait 2s".parse()?).build()?;
    /// let wider = login.with_quotas(&[Quota::per_minute(10).burst(4)])?;
    /// assert_eq!(wider.to_string(), "login: 10/min burst 4 (gcra)");
    /// assert_eq!(wider.on_exceeded(), login.on_exceeded());
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// When there is no quota, and as [`build`](crate::policy::PolicyBuilder::build).
    pub fn with_quotas(&self, quotas: &[Quota]) -> Result<Self, ConfigError> {
        let are_as_many = quotas.len() == self.quotas.len();
        let id = |index: usize| self.quotas.get(index).filter(|_| are_as_many)?.id.clone();
        let quotas = quotas.iter().enumerate().map(|(index, quota)| (id(index), Ok(*quota)));
        self.with(quotas.collect()).build()
    }

    /// Begins a policy like this one with other quotas.
    fn with(&self, mut quotas: Vec<(Option<String>, Result<Quota, ConfigError>)>) -> PolicyBuilder {
        if quotas.len() == self.quotas.len() {
            for ((_, quota), own) in quotas.iter_mut().zip(&self.quotas) {
                if let Ok(quota) = quota {
                    *quota = quota.with_algorithm(quota.algorithm().or_else(|| own.quota.algorithm()));
                }
            }
        }
        PolicyBuilder {
            name: self.name.clone(),
            algorithm: self.algorithm,
            quotas,
            settings: self.settings.clone(),
            suspension: self.suspension.as_ref().map(Into::into),
            tightening: TighteningDraft::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_share_keeps_everything_but_the_size() {
        let whole = Policy::gcra("plan", "100/min burst 7").and("5/s").named("short");
        let whole = whole.wait_up_to(Duration::from_secs(2)).hidden().build().unwrap();
        let quarter = whole.share("plan", 1, 4).unwrap();
        assert_eq!(quarter.to_string(), "plan: 25/min burst 2, 2/s (gcra)");
        assert_eq!(quarter.quotas()[1].label(), "plan.short");
        assert_eq!((quarter.on_exceeded(), quarter.is_hidden()), (whole.on_exceeded(), true));
        assert_eq!(whole.share("plan", 1, 1).unwrap(), whole);
        let starting = Policy::gcra("plan", "10/min burst 9 start 7").build().unwrap();
        assert_eq!(starting.share("plan", 1, 4).unwrap().to_string(), "plan: 3/min start 1 (gcra)");
        assert_eq!(starting.share("plan", 1, 9).unwrap().quotas()[0].quota().start(), Some(0));
        assert_eq!(whole.share("plan", 1, 1_000_000).unwrap().quotas()[0].quota(), Quota::per_minute(1));
    }

    #[test]
    fn parts_sum_exactly_to_the_whole_and_none_is_empty() {
        for (limit, burst) in [(25, 25), (7, 19), (1_000_003, 64)] {
            for count in 1..=7_u64 {
                let whole =
                    Policy::gcra("plan", Quota::per_minute(limit).burst(burst)).and("97/h").build().unwrap();
                let parts = whole.split((1..=count).map(|part| (format!("plan.{part}"), 1))).unwrap();
                for (place, of_whole) in whole.quotas().iter().enumerate() {
                    let each = || parts.iter().map(|part| part.quotas()[place].quota());
                    assert_eq!(each().map(|quota| quota.limit()).sum::<u64>(), of_whole.quota().limit());
                    assert_eq!(
                        each().map(|quota| quota.burst_size()).sum::<u64>(),
                        of_whole.quota().burst_size()
                    );
                    let spread = each().map(|quota| quota.limit());
                    assert!(spread.clone().max().unwrap() - spread.min().unwrap() <= 1);
                }
            }
        }
        let weighed = Policy::sliding_log("plan", "100/min").build().unwrap();
        let weighed = weighed.split([60, 25, 15].map(|weight| (format!("plan.{weight}"), weight))).unwrap();
        assert_eq!(
            weighed.iter().map(|part| part.quotas()[0].quota().limit()).collect::<Vec<_>>(),
            [60, 25, 15]
        );
    }

    #[test]
    fn a_policy_that_parts_cannot_keep_is_refused_with_the_reason() {
        let split = |policy: PolicyBuilder, weights: &[u64]| {
            let parts = weights.iter().enumerate().map(|(place, weight)| (format!("plan.{place}"), *weight));
            policy.build().unwrap().split(parts).unwrap_err().to_string()
        };
        for (policy, weights, reason) in [
            (Policy::gcra("plan", "3/s"), &[1, 1, 1, 1][..], "one of 4 parts would have none of 3 units"),
            (Policy::gcra("plan", "30/s burst 1"), &[1, 1], "none of 1 units"),
            (Policy::gcra("plan", "30/s"), &[1, 0], "none of 30 units"),
            (Policy::leaky_queue("plan", "30/s"), &[1, 1], "a queue spaces its output in one place"),
            (Policy::gcra("plan", "30/s").count_rejected(), &[1, 1], "it counts refused requests"),
            (Policy::gcra("plan", "30/s start 4"), &[1, 1], "would be known to one part and not to another"),
            (
                Policy::builder("plan", Algorithm::FixedWindow(Anchor::FirstHit), "30/s"),
                &[1, 1],
                "first unit",
            ),
            (
                Policy::builder("plan", Algorithm::TokenBucket(Refill::Interval), "30/s"),
                &[1, 1],
                "first unit",
            ),
        ] {
            let message = split(policy, weights);
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn a_share_of_nothing_or_too_much_is_refused() {
        let whole = Policy::gcra("plan", "100/min").build().unwrap();
        for (parts, of) in [(0, 4), (5, 4), (1, 0)] {
            let message = whole.share("plan", parts, of).unwrap_err().to_string();
            assert!(message.contains(&format!("{parts}/{of}")), "{message}");
        }
    }
}
