//! Named limits: [`Policy`], its quotas, and what it does when they are exceeded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{Algorithm, Anchor, Drain, Refill, Rule};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::limiter::RateLimiter;
use crate::quota::{IntoQuota, Quota};
use crate::store::Store;

/// The most quotas that one request can be checked against, over all its policies.
pub const MAX_BUCKETS: usize = 16;

/// What happens to a request that exceeds its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnExceeded {
    /// It is refused.
    Deny,
    /// It waits its turn, first come, first served, if that comes within `longest`; otherwise it is refused at once.
    Wait {
        /// The longest wait.
        longest: Duration,
    },
}

/// A named set of quotas with an algorithm, and what to do when they are exceeded.
///
/// All quotas of a policy are decided together: a request spends from all of them or from none.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, OnExceeded, Policy};
///
/// let store = MemoryStore::new();
/// let login = Policy::sliding_counter("login", "5/min").on(&store)?;
///
/// // Two quotas together, and a wait of up to five seconds instead of a refusal.
/// let payment = Policy::gcra("payment", "5/min").and("2/10s").wait_up_to(Duration::from_secs(5)).build()?;
/// assert_eq!(payment.quotas().len(), 2);
/// assert_eq!(payment.on_exceeded(), OnExceeded::Wait { longest: Duration::from_secs(5) });
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    name: String,
    algorithm: Algorithm,
    quotas: Vec<PolicyQuota>,
    on_exceeded: OnExceeded,
}

/// One quota of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyQuota {
    quota: Quota,
    rule: Rule,
    id: Option<String>,
    label: String,
}

impl PolicyQuota {
    /// How much in how long.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The integers that decide; for authors of stores.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The id given by [`PolicyBuilder::named`], by which a replaced policy's quotas find their successors.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The name that headers show: the policy's, followed by the quota's id or period if the policy has several.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl Policy {
    /// Begins a policy. The name appears in headers, logs and metrics, and is the key's namespace in a store.
    pub fn builder(name: impl Into<String>, algorithm: Algorithm, quota: impl IntoQuota) -> PolicyBuilder {
        PolicyBuilder {
            name: name.into(),
            algorithm,
            quotas: vec![(None, quota.into_quota())],
            on_exceeded: OnExceeded::Deny,
        }
    }

    /// Begins a policy of fixed windows, on the full minute or hour.
    pub fn fixed_window(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::FixedWindow(Anchor::Epoch), quota)
    }

    /// Begins a policy with a sliding window log.
    pub fn sliding_log(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::SlidingLog, quota)
    }

    /// Begins a policy with a sliding window counter.
    pub fn sliding_counter(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::SlidingCounter, quota)
    }

    /// Begins a policy with a token bucket that refills continuously.
    pub fn token_bucket(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::TokenBucket(Refill::Greedy), quota)
    }

    /// Begins a policy with a leaky bucket that refuses what does not fit.
    pub fn leaky_bucket(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::LeakyBucket(Drain::Police), quota)
    }

    /// Begins a policy with a leaky bucket whose output is evenly spaced; the quota's burst is the queue's length.
    pub fn leaky_queue(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::LeakyBucket(Drain::Shape), quota)
    }

    /// Begins a policy with GCRA.
    pub fn gcra(name: impl Into<String>, quota: impl IntoQuota) -> PolicyBuilder {
        Self::builder(name, Algorithm::Gcra, quota)
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its quotas are counted.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its quotas, in the order in which they were given; at least one.
    pub fn quotas(&self) -> &[PolicyQuota] {
        &self.quotas
    }

    /// What happens to a request that exceeds it.
    pub fn on_exceeded(&self) -> OnExceeded {
        self.on_exceeded
    }
}

/// `login: 5/min, 20/h (sliding-counter)`
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        for (index, quota) in self.quotas.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, quota.quota)?;
        }
        write!(f, " ({})", self.algorithm)
    }
}

/// Collects what a [`Policy`] is made of; mistakes are reported by [`build`](Self::build).
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` or `on` is called"]
pub struct PolicyBuilder {
    name: String,
    algorithm: Algorithm,
    quotas: Vec<(Option<String>, Result<Quota, ConfigError>)>,
    on_exceeded: OnExceeded,
}

impl PolicyBuilder {
    /// Adds a quota: all quotas must have room, and all are spent from, or none.
    pub fn and(mut self, quota: impl IntoQuota) -> Self {
        self.quotas.push((None, quota.into_quota()));
        self
    }

    /// Gives the quota that was added last an id, for headers and for replacing the policy at run time.
    pub fn named(mut self, id: impl Into<String>) -> Self {
        if let Some((last, _)) = self.quotas.last_mut() {
            *last = Some(id.into());
        }
        self
    }

    /// Makes a request that exceeds the policy wait its turn for up to `longest`. Default: it is refused.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.on_exceeded = OnExceeded::Wait { longest };
        self
    }

    /// Checks the parts and puts them together.
    ///
    /// # Errors
    /// A name outside `[a-z0-9][a-z0-9._-]{0,63}`, more than 16 quotas, two quotas that headers could not tell
    /// apart, and whatever [`Rule::new`] refuses. The message names the value and what would be accepted.
    pub fn build(self) -> Result<Policy, ConfigError> {
        check_name("policy name", &self.name)?;
        if self.quotas.len() > MAX_BUCKETS {
            return Err(
                self.error(format!("has {} quotas, and at most {MAX_BUCKETS} fit", self.quotas.len()))
            );
        }
        if let (Algorithm::LeakyBucket(Drain::Shape | Drain::ShapeAbove(_)), [_, _, ..]) =
            (self.algorithm, &*self.quotas)
        {
            let problem = "is a queue and has several quotas, but a queue spaces its output in one way: put the others into policies of their own";
            return Err(self.error(problem.to_owned()));
        }
        let mut quotas: Vec<PolicyQuota> = Vec::with_capacity(self.quotas.len());
        let single = self.quotas.len() == 1;
        for (id, quota) in &self.quotas {
            let quota = quota.clone().map_err(|error| self.wrap(&error))?;
            let rule = Rule::new(self.algorithm, quota).map_err(|error| self.wrap(&error))?;
            let label = match id {
                Some(id) => {
                    check_name("quota id", id)?;
                    format!("{}.{id}", self.name)
                }
                None if single => self.name.clone(),
                None => format!("{}.{}", self.name, period_label(quota)),
            };
            if quotas.iter().any(|other| other.label == label) {
                return Err(self.error(format!(
                    "has two quotas called {label:?} in headers: give one a name of its own with `named`"
                )));
            }
            quotas.push(PolicyQuota { quota, rule, id: id.clone(), label });
        }
        Ok(Policy { name: self.name, algorithm: self.algorithm, quotas, on_exceeded: self.on_exceeded })
    }

    /// Builds the policy and puts it on a store: the last step to a [`RateLimiter`].
    ///
    /// # Errors
    /// As [`build`](Self::build), and whatever the store cannot keep.
    pub fn on(self, store: impl Into<Arc<dyn Store>>) -> Result<RateLimiter, ConfigError> {
        RateLimiter::new(store, self.build()?)
    }

    fn error(&self, problem: String) -> ConfigError {
        ConfigError::new(ConfigErrorKind::Policy, format!("policy {:?} {problem}", self.name))
    }

    fn wrap(&self, error: &ConfigError) -> ConfigError {
        ConfigError::new(error.kind(), format!("policy {:?}: {error}", self.name))
    }
}

/// `5/30s` is called `30s`, `100/min` `1min`.
fn period_label(quota: Quota) -> String {
    let text = Quota::new(1, quota.period()).to_string();
    let period = text.trim_start_matches("1/");
    if period.starts_with(|c: char| c.is_ascii_digit()) { period.to_owned() } else { format!("1{period}") }
}

/// Names go into headers, Redis keys and metric labels as they are, so they need no escaping anywhere.
fn check_name(what: &str, name: &str) -> Result<(), ConfigError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let good = name.len() <= 64
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-'));
    if good {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(ConfigError::new(
        ConfigErrorKind::Policy,
        format!(
            "{shown:?} cannot be a {what}: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        ),
    ))
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
        for name in ["", "Ü", "a b", "Login", "-x", &"x".repeat(65)] {
            let message = Policy::gcra(name, "5/min").build().unwrap_err().to_string();
            assert!(message.contains("cannot be a policy name"), "{message}");
        }
        let message = Policy::gcra("login", "five/min").build().unwrap_err().to_string();
        assert!(message.starts_with("policy \"login\": \"five/min\" is not a quota"), "{message}");
    }
}
