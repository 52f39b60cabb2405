//! Whether a policy is enforced, and what it does when it is exceeded, when its store is down, and when a table is full.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;
use crate::text::{value_of, words};
use crate::time_span::TimeSpan;

/// The treatment of a request that exceeds its policy. Written `deny` and `wait 5s`.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::OnExceeded;
///
/// assert_eq!("deny".parse(), Ok(OnExceeded::Deny));
/// assert_eq!("wait 500ms".parse(), Ok(OnExceeded::Wait { longest: Duration::from_millis(500) }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnExceeded {
    /// The request is refused.
    #[default]
    Deny,
    /// The request waits for its turn, first come, first served, if the turn comes within `longest`; otherwise it is refused at once.
    Wait {
        /// The longest wait.
        longest: Duration,
    },
}

/// Whether a policy is enforced. Written `enforce`, `shadow` and `off`.
///
/// Replacing a policy with itself in another mode keeps its keys: spent units stay spent, and drain in
/// the meantime. In every mode, units spent earlier can be given back, reset and waited for.
///
/// ```
/// use sluicegate_core::limiter::Inherit;
/// use sluicegate_core::policy::PolicyMode;
/// use sluicegate_core::{MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let login = Policy::sliding_log("login", "1/min").on(&MemoryStore::new())?;
/// assert!(login.check("ada").await?.is_allowed());
///
/// login.replace(login.own_policy().in_mode(PolicyMode::Off), Inherit::Spent)?;
/// assert!(login.check("ada").await?.is_allowed());
///
/// login.replace(login.own_policy().in_mode("enforce".parse()?), Inherit::Spent)?;
/// assert!(!login.check("ada").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PolicyMode {
    /// No store is asked: every request passes and spends nothing, and clients do not see the policy. Handles answer with an
    /// [uncounted](crate::store::DecidedBy::Off) decision.
    Off,
    /// The policy is only tried out: layers decide, count and log the requests that it would have refused, and let them pass; clients do not
    /// see it. [`RateLimiter`](crate::RateLimiter)'s own methods answer as always, because their callers enforce the answer.
    Shadow,
    /// The policy is enforced.
    #[default]
    Enforce,
}

/// The treatment of a request while the store cannot be reached. Written `local`, `allow` and `deny`, or as a quota: `1000/s`.
///
/// Handles, layers and attributes treat every store in this way: a question without an answer becomes a decision
/// that names its maker, [`DecidedBy::Fallback`](crate::store::DecidedBy::Fallback) or
/// [`DecidedBy::Outage`](crate::store::DecidedBy::Outage). Only reports (a charge, a refund or a reset) stay errors,
/// unless the store is `Resilient`, which keeps account of them.
///
/// | | with a `Resilient` store | with a bare store |
/// |---|---|---|
/// | `Local` | this process decides, with its share, and knows the units that the store has admitted | this process decides, with whole quotas, and all keys start at rest |
/// | `Quota` | this process decides, by this quota, and knows the units that the store has admitted | this process decides, by this quota, and all keys start at rest |
/// | `Allow` | let through | let through |
/// | `Deny` | refused, until the store is tried again | refused for a second |
///
/// Use `Deny` if an unlimited minute costs more than an outage, as for logins and payments;
/// `Allow` if the service behind survives its own traffic; `Quota` if one instance needs a limit other than the fleet's limit
/// divided by its instances; `Local` otherwise.
///
/// ```
/// use sluicegate_core::{OnOutage, Policy, Quota};
///
/// let search = Policy::gcra("search", "100/min").and("5000/d").on_outage(OnOutage::Quota(Quota::per_second(20)));
/// assert_eq!(search.build()?.on_outage(), "20/s".parse()?);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnOutage {
    /// This process decides alone. With a `Resilient` store around the store, it uses its share of the quotas, starts with
    /// the units that the store has admitted, and afterwards charges the units that it admits itself to the store. With a bare store
    /// it knows neither the number of instances nor the counts of the store: it applies the whole quotas by itself, in a
    /// [`MemoryStore`](crate::MemoryStore) that is made in the first outage and lives as long as the store. Units that it admits count
    /// in the next outage too; they are not charged to the store, and cannot be given back. No request waits for a turn
    /// meanwhile.
    #[default]
    Local,
    /// This process decides alone, by this quota for each key: it replaces all quotas of the policy and those that keys
    /// bring, however many instances there are. It uses the algorithm of the policy's first quota, unless it
    /// [names](Quota::counted_by) one. Units admitted by it are not charged to the store
    /// afterwards, because they say nothing about the policy's own quotas; otherwise it works like [`Local`](Self::Local).
    Quota(Quota),
    /// The request is let through and not counted, with a `Resilient` store and with a bare one. A bare store is asked
    /// each time, so the request waits for the deadline if the store hangs.
    Allow,
    /// The request is refused, with 503 over HTTP. It is told to come back when a `Resilient` store is tried again, or
    /// after a second with a bare store.
    Deny,
}

/// The treatment of the least indebted key of a store of fixed size when there is no room for another indebted key.
/// Written `forget` and `inherit`.
///
/// ```
/// use sluicegate_core::policy::OnFull;
///
/// assert_eq!("inherit".parse(), Ok(OnFull::Inherit));
/// assert_eq!(OnFull::default().to_string(), "forget");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFull {
    /// The key is forgotten, and starts afresh: every new key is served, and a flood may free a debtor that owes less.
    #[default]
    Forget,
    /// New keys in the same part of the table inherit its debt: no flood frees a debtor. For limits where
    /// forgetting is worse than refusing.
    ///
    /// The price: in a flood, new keys that have spent nothing start with a debt, and may be refused until it has
    /// drained. That takes no longer than the heaviest debt that had to make room, plus one window if windows begin
    /// with a key's first unit.
    Inherit,
    /// The new key is not counted, and every debtor stays: for promises that no flood may break, such as
    /// [suspensions](crate::suspension), not for limits, which would let such keys pass. Logs of requests forget the key instead.
    Keep,
}

words!(PolicyMode decides "whether a policy is enforced":
    "enforce" => Enforce, "shadow" => Shadow, "off" => Off);

words!(OnFull decides "what becomes of the least indebted key of a store that is full":
    "forget" => Forget, "inherit" => Inherit, "keep" => Keep);

impl OnOutage {
    /// Whether this process decides, by numbers.
    #[cfg(feature = "limiter")]
    pub(crate) fn decides_here(self) -> bool {
        matches!(self, Self::Local | Self::Quota(_))
    }
}

impl fmt::Display for OnOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Quota(quota) => quota.fmt(f),
            Self::Allow => f.write_str("allow"),
            Self::Deny => f.write_str("deny"),
        }
    }
}

impl FromStr for OnOutage {
    type Err = ConfigError;

    /// Reads `local`, `allow` or `deny`, or a [`Quota`]: `1000/s`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Unreadable`] for any other word, and the errors of a quota for a text that begins with a number.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return text.parse().map(Self::Quota);
        }
        let words = [("local", Self::Local), ("allow", Self::Allow), ("deny", Self::Deny)];
        let more = ", or a quota for this process, such as \"1000/s\"";
        value_of(text, &words, "what happens while the store cannot be reached", more)
    }
}

impl fmt::Display for OnExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deny => f.write_str("deny"),
            Self::Wait { longest } => write!(f, "wait {}", TimeSpan::from(*longest)),
        }
    }
}

impl OnExceeded {
    /// The time that a request may wait for its turn, if it may wait.
    pub fn longest_wait(self) -> Option<Duration> {
        match self {
            Self::Deny => None,
            Self::Wait { longest } => Some(longest),
        }
    }
}

impl FromStr for OnExceeded {
    type Err = ConfigError;

    /// Reads `deny`, or `wait` with a [`TimeSpan`]: `wait 5s`, `wait 500ms`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Unreadable`] for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let Some(time) = text.strip_prefix("wait") else {
            let more = ", or \"wait\" with a time, such as \"wait 5s\" or \"wait 500ms\"";
            return value_of(
                text,
                &[("deny", Self::Deny)],
                "what happens to a request that exceeds the limit",
                more,
            );
        };
        let longest = time.parse::<TimeSpan>().map_err(|error| {
            let problem = if time.trim().is_empty() { "write \"wait 5s\"" } else { error.problem() };
            let problem = format!("{text:?} does not say how long a request waits: {problem}");
            let span = error.span().map_or(0..text.len(), |span| span.start + 4..span.end + 4);
            ConfigError::new(ConfigErrorKind::Unreadable, problem).at(span)
        })?;
        Ok(Self::Wait { longest: longest.into() })
    }
}
