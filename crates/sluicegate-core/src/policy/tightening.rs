//! Another quota while the requests of a policy are unusual: [`Tightening`].

use std::time::Duration;

use super::{LONGEST_CHANGE, PolicyBuilder};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::{IntoQuota, Quota};
use crate::time_span::{IntoTimeSpan, TimeSpan};

/// The most instances that can be required to agree.
const MOST_INSTANCES: u64 = 100;

/// The quota of a policy during its alarms; see [`PolicyBuilder::tighten`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tightening {
    quota: Quota,
    longest: Duration,
    agreed_by: u64,
    is_of_new_keys: bool,
    is_shadow: bool,
}

impl Tightening {
    /// The quota that replaces the policy's first one.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The longest time for which it applies.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The number of instances that have to see an alarm within an hour, if they share a store.
    pub fn agreed_by(&self) -> u64 {
        self.agreed_by
    }

    /// Whether it applies only to new keys, while all others keep their quotas.
    pub fn is_of_new_keys(&self) -> bool {
        self.is_of_new_keys
    }

    /// Whether it is only logged.
    pub fn is_shadow(&self) -> bool {
        self.is_shadow
    }
}

/// A [`Tightening`] as written, in any order, right or wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct TighteningDraft {
    to: Option<(Result<Quota, ConfigError>, Result<TimeSpan, ConfigError>)>,
    agreed_by: Option<u64>,
    is_of_new_keys: bool,
    is_shadow: bool,
}

crate::setters! { PolicyBuilder
    /// Replaces the first quota with a lower one while the requests of this policy are unusual, for at most `longest`. No alarm
    /// sets a quota below it. Default: an alarm only notifies. Add [`in_shadow`](Self::tighten_in_shadow) first, and read the log.
    ///
    /// It needs a store that detects alarms, `Observed` of the crate `sluicegate-observed`. It is an [override](crate::limiter::Overrides)
    /// by the operator `alarm`: all instances apply it, explanations and pages show it, and an operator can withdraw it. It ends with the
    /// alarm, and it does not replace an operator's override.
    ///
    /// ```
    /// use sluicegate_core::Policy;
    ///
    /// let login = Policy::gcra("login", "10/min").tighten("3/min", "30min").build()?;
    /// assert_eq!(login.tightening().map(|to| to.quota().to_string()).as_deref(), Some("3/min"));
    /// let error = Policy::gcra("login", "10/min").tighten("20/min", "30min").build().unwrap_err();
    /// assert!(error.to_string().contains("20/min is not below 10/min"), "{error}");
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// When the policy is built: for a quota that is not below its first one or that its algorithm cannot keep, and for no time, or more
    /// than 30 days; and for the settings below without this one.
    pub fn tighten(it, quota: impl IntoQuota, longest: impl IntoTimeSpan) {
        it.tightening.to = Some((quota.into_quota(), longest.into_time_span()))
    }

    /// Sets how many instances have to see an alarm within an hour before they [tighten](Self::tighten), if they share a store: 1 to
    /// 100. Default: 2, so that no instance tightens on its own evidence.
    pub fn tighten_agreed_by(it, instances: u64) { it.tightening.agreed_by = Some(instances) }

    /// [Tightens](Self::tighten) the policy only for new keys, so that known keys keep their quota. Default: all keys.
    ///
    /// A key is known to an instance that has served it in the last day or two, up to a minute or two before the alarm began there. A Bloom
    /// filter decides, and may take a new key for a known one: about one in a hundred at 50,000 keys a day, and more beyond. An instance that
    /// has watched the policy for less than an hour knows all keys. Keys that bring quotas of their own keep these. It takes 256 KiB for each policy.
    pub fn tighten_new_keys(it) { it.tightening.is_of_new_keys = true }

    /// Only logs the changes that [`tighten`](Self::tighten) would make.
    pub fn tighten_in_shadow(it) { it.tightening.is_shadow = true }
}

impl PolicyBuilder {
    /// Checks the tightening, and moves it to the settings.
    pub(super) fn with_tightening(mut self) -> Result<Self, ConfigError> {
        let TighteningDraft { to, agreed_by, is_of_new_keys, is_shadow } =
            std::mem::take(&mut self.tightening);
        let wrong = |problem: String| {
            ConfigError::new(ConfigErrorKind::Policy, format!("it cannot tighten: {problem}"))
                .in_policy(&self.name)
        };
        let Some((quota, longest)) = to else {
            let is_set = agreed_by.is_some() || is_of_new_keys || is_shadow;
            return if is_set {
                Err(wrong("it is not said to which quota: use `tighten`".to_owned()))
            } else {
                Ok(self)
            };
        };
        let quota = quota.map_err(|error| wrong(error.problem().to_owned()))?;
        let longest = Duration::from(longest.map_err(|error| wrong(error.problem().to_owned()))?);
        if longest.is_zero() || longest > LONGEST_CHANGE {
            let (longest, most) = (TimeSpan::from(longest), TimeSpan::from(LONGEST_CHANGE));
            return Err(wrong(format!("for {longest}: use a time up to {most}")));
        }
        let agreed_by = agreed_by.unwrap_or(2);
        if !(1..=MOST_INSTANCES).contains(&agreed_by) {
            return Err(wrong(format!("agreed by {agreed_by} instances: use 1 to {MOST_INSTANCES}")));
        }
        if let Some((_, Ok(own))) = self.quotas.first() {
            let rate = |quota: &Quota, other: &Quota| u128::from(quota.limit()) * other.period().as_nanos();
            if rate(&quota, own) >= rate(own, &quota) {
                return Err(wrong(format!("{quota} is not below {own}")));
            }
        }
        let mut tightened = self.clone();
        if let Some((_, first)) = tightened.quotas.first_mut() {
            *first = Ok(quota);
        }
        tightened.put_together().map_err(|error| wrong(error.problem().to_owned()))?;
        self.settings.tightening = Some(Tightening { quota, longest, agreed_by, is_of_new_keys, is_shadow });
        Ok(self)
    }
}
