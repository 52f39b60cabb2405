//! The same policy with other quotas: a part of it, for one of several instances or endpoints, or what an operator says.

use super::Policy;
use super::builder::PolicyBuilder;
use super::settings::Settings;
use crate::algorithm::{Algorithm, Drain};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;

impl Policy {
    /// The same policy under another name, with `parts` of `whole` of each limit and burst, rounded up: a tenth of a
    /// plan for one expensive endpoint, or what one of four instances may admit on its own.
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
    /// When the share is nothing or more than the whole, when the name cannot be used, and when the smaller quota
    /// cannot be kept exactly.
    ///
    /// Shares are rounded up, so their sum may be above the whole: four quarters of ten are twelve.
    /// All other settings stay.
    pub fn share(&self, name: impl Into<String>, parts: u64, whole: u64) -> Result<Self, ConfigError> {
        if parts == 0 || parts > whole {
            return Err(ConfigError::new(
                ConfigErrorKind::Policy,
                format!("a share of {parts}/{whole}: use more than nothing and at most 1"),
            )
            .in_policy(&self.name));
        }
        let part = |units: u64| {
            let part = (u128::from(units) * u128::from(parts)).div_ceil(u128::from(whole));
            u64::try_from(part).unwrap_or(units)
        };
        let algorithm = match self.algorithm {
            Algorithm::LeakyBucket(Drain::QueueAbove(units)) => {
                Algorithm::LeakyBucket(Drain::QueueAbove(part(units)))
            }
            other => other,
        };
        let quotas = self.quotas.iter().map(|quota| {
            let smaller = Quota::new(part(quota.quota.limit()), quota.quota.period());
            (quota.id.clone(), Ok(smaller.burst(part(quota.quota.burst_size()))))
        });
        let builder = self.with(quotas.collect());
        let name = name.into();
        let is_renamed = name != self.name;
        let settings = Settings { debt: self.settings.debt.map(part), ..builder.settings };
        let share = PolicyBuilder { name, algorithm, settings, ..builder };
        if is_renamed { share.build() } else { share.assembled() }
    }

    /// The same policy with other quotas, which keep the ids of its own if there are as many.
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
    /// When there is none, and as [`build`](crate::policy::PolicyBuilder::build).
    pub fn with_quotas(&self, quotas: &[Quota]) -> Result<Self, ConfigError> {
        let are_as_many = quotas.len() == self.quotas.len();
        let id = |index: usize| self.quotas.get(index).filter(|_| are_as_many)?.id.clone();
        let quotas = quotas.iter().enumerate().map(|(index, quota)| (id(index), Ok(*quota)));
        self.with(quotas.collect()).build()
    }

    /// Begins the same policy with other quotas.
    fn with(&self, quotas: Vec<(Option<String>, Result<Quota, ConfigError>)>) -> PolicyBuilder {
        PolicyBuilder {
            name: self.name.clone(),
            algorithm: self.algorithm,
            quotas,
            settings: self.settings,
            counted_as: self.counted_as.clone(),
            suspension: self.suspension.as_ref().map(Into::into),
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
        assert_eq!(whole.share("plan", 1, 1_000_000).unwrap().quotas()[0].quota(), Quota::per_minute(1));
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
