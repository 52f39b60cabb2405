//! Named limits: [`Policy`], its quotas, and what it does when they are exceeded.
//!
//! A policy is data: it is compared, printed and built without a store. [`PolicyBuilder::on`] puts
//! it on a store. Its name identifies its buckets in header fields, logs and Redis, so two policies of
//! a store have different names.
//!
//! | setting | by | default |
//! |---|---|---|
//! | how much in how long | `Policy::gcra(name, "10/s burst 20")`, [`and`](PolicyBuilder::and) for more quotas, `"10000/d by fixed-window"` for another algorithm | |
//! | what happens to requests that exceed it | [`on_exceeded`](PolicyBuilder::on_exceeded), [`wait_up_to`](PolicyBuilder::wait_up_to) | [`OnExceeded::Deny`] |
//! | whether it is enforced | [`mode`](PolicyBuilder::mode), [`shadow`](PolicyBuilder::shadow) | [`PolicyMode::Enforce`] |
//! | when a key is refused outright | [`suspend`](PolicyBuilder::suspend), [`everywhere`](PolicyBuilder::everywhere) | never |
//! | whether refused requests count | [`count_rejected`](PolicyBuilder::count_rejected) | no |
//! | what an outage of the store means | [`on_outage`](PolicyBuilder::on_outage) | [`OnOutage::Local`] |
//! | what metrics call it | [`counted_as`](PolicyBuilder::counted_as) | its name |
//! | whether clients see it | [`hidden`](PolicyBuilder::hidden) | yes |
//! | what happens when the table in memory is full | [`on_full`](PolicyBuilder::on_full), [`table_size`](PolicyBuilder::table_size) | [`OnFull::Forget`] |
//! | how exact refunds are, and how deep a debt | [`refunds`](PolicyBuilder::refunds), [`debt_up_to`](PolicyBuilder::debt_up_to) | drained units count against a refund; ten bursts |
//!
//! ```
//! use std::time::Duration;
//! use sluicegate_core::{MemoryStore, OnOutage, Policy};
//!
//! let store = MemoryStore::new();
//! let api = Policy::gcra("api", "100/min").on(&store)?; // the defaults
//!
//! let mail = Policy::gcra("mail", "3/h").and("10/d")
//!     .wait_up_to(Duration::from_secs(2))
//!     .on_outage(OnOutage::Deny)
//!     .build()?;
//! assert_eq!((mail.name(), mail.quotas().len()), ("mail", 2));
//! let mail = sluicegate_core::RateLimiter::new(&store, mail)?;
//! # Ok::<(), sluicegate_core::ConfigError>(())
//! ```
//!
//! # One policy or several
//! Quotas of one policy share its key: "5 a minute and 20 an hour, per user" is one policy with two
//! quotas. Limits with different keys, such as one per user and one per address, are two policies,
//! which a layer or [`check_all`](crate::limiter::check_all) decides together.
//! In both cases, all spend or none does.
//!
//! # When not to use it
//! A policy counts units over time. To limit the number of requests at the same moment, use
//! `InFlight` of the crate `sluicegate-in-flight`; for the share of a plan that one endpoint may use,
//! [`Policy::share`].

#[cfg(feature = "limiter")]
mod board;
mod builder;
#[cfg(feature = "limiter")]
mod overrides;
mod share;
mod suspension;
mod tightening;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[cfg(feature = "limiter")]
pub(crate) use self::board::Board;
pub(crate) use self::builder::MOST_KEYS;
pub use self::builder::PolicyBuilder;
use self::builder::PolicySettings;
#[cfg(feature = "limiter")]
pub use self::overrides::Quotas;
#[cfg(feature = "limiter")]
pub use self::overrides::{Override, OverrideBuilder};
pub use self::suspension::Suspension;
pub use self::tightening::Tightening;
use super::error::{ConfigError, ConfigErrorKind};
use super::text::{value_of, words};
use crate::algorithm::{Algorithm, Rule};
pub use crate::quota::IntoQuota;
use crate::quota::Quota;
pub use crate::time_span::{IntoTimeSpan, TimeSpan};

/// The most quotas that one request can be checked against, over all its policies.
///
/// The bound keeps a decision's memory fixed and a Redis script's work small. A policy with more is
/// refused when it is built, a request with more by
/// [`StoreErrorKind::TooManyQuotas`](crate::error::StoreErrorKind::TooManyQuotas).
pub const MAX_QUOTAS: usize = 16;

/// The longest time for which a policy is changed at run time: a longer change belongs in the code or in the rules file.
const LONGEST_CHANGE: Duration = Duration::from_secs(30 * 86_400);

/// A named set of quotas with an algorithm, and what to do when they are exceeded.
///
/// All quotas of a policy are decided together: a request spends from all of them or from none.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::{MemoryStore, OnExceeded, Policy};
///
/// let store = MemoryStore::new();
/// let login = Policy::sliding_log("login", "5/min").on(&store)?;
///
/// // Two quotas together, and a wait of up to five seconds instead of a refusal.
/// let payment = Policy::gcra("payment", "5/min").and("2/10s").wait_up_to(Duration::from_secs(5)).build()?;
/// assert_eq!(payment.quotas().len(), 2);
/// assert_eq!(payment.on_exceeded(), OnExceeded::Wait { longest: Duration::from_secs(5) });
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// Mistakes are reported when the policy is built, and name the value:
///
/// ```
/// use sluicegate_core::Policy;
///
/// let error = Policy::sliding_log("login", "5/min burst 9").build().unwrap_err();
/// assert!(error.to_string().contains("burst 9"), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    name: String,
    algorithm: Algorithm,
    quotas: Vec<PolicyQuota>,
    settings: PolicySettings,
    suspension: Option<Suspension>,
    is_of_suspension: bool,
}

/// One quota of a policy.
///
/// ```
/// use sluicegate_core::Policy;
///
/// let policy = Policy::gcra("payment", "5/min").and("2/10s").and("100/d").named("day").build()?;
/// let labels: Vec<_> = policy.quotas().iter().map(|quota| quota.label()).collect();
/// assert_eq!(labels, ["payment.1min", "payment.10s", "payment.day"]);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyQuota {
    quota: Quota,
    algorithm: Algorithm,
    rule: Rule,
    id: Option<String>,
    label: String,
}

impl PolicyQuota {
    /// The limit, the period and the burst. The quota names its algorithm if it differs from its policy's.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The algorithm that the quota is counted by.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The integers that decide; for authors of stores.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The id given by [`PolicyBuilder::named`], by which a replaced policy's quotas find their successors.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The name in headers: the policy's name, followed by the quota's id or period if the policy has several.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl Policy {
    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The algorithm of its first quota, and of the others unless they [name](Quota::counted_by) one of their own.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its quotas, in the order in which they were given; at least one.
    pub fn quotas(&self) -> &[PolicyQuota] {
        &self.quotas
    }

    /// When a key is refused outright, if the policy suspends keys.
    #[inline]
    pub fn suspension(&self) -> Option<&Suspension> {
        self.suspension.as_ref()
    }

    /// The number of buckets that one request is checked against under this policy: one for each quota, one for suspensions of the
    /// key, and one for suspensions by all policies, if this one suspends [everywhere](PolicyBuilder::everywhere). A request
    /// is checked against at most [`MAX_QUOTAS`].
    pub fn buckets(&self) -> usize {
        self.quotas.len() + self.suspension.as_ref().map_or(0, Suspension::buckets)
    }

    /// Whether this is one of the additional buckets of a policy with a [suspension](PolicyBuilder::suspend). Such a
    /// bucket is not a limit of its own, and must not be counted as one.
    #[doc(hidden)]
    pub fn is_of_suspension(&self) -> bool {
        self.is_of_suspension
    }
}

/// `login: 5/min, 20/h (sliding-counter)`, and `api: 100/min, 10000/d by token-bucket-aligned (gcra)`
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        for (index, quota) in self.quotas.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, quota.quota)?;
        }
        write!(f, " ({})", self.algorithm)
    }
}

const MOST: usize = 64;

/// Checks a name that goes into header fields, Redis keys and metric labels: policies, quotas, stores. No name needs escaping there.
///
/// # Errors
/// [`ConfigErrorKind::Name`] with the character or the length that is wrong; `what` says in the message which name it is.
pub fn check_name(what: &str, name: &str) -> Result<(), ConfigError> {
    let problem = match name.chars().enumerate().find(|&(index, c)| !fits(index, c)) {
        Some((0, c @ ('.' | '_' | '-'))) => format!("it begins with {c:?}"),
        Some((_, c)) => format!("{c:?} would have to be escaped in headers, metrics or Redis keys"),
        None if name.is_empty() => "it is empty".to_owned(),
        None if name.len() > MOST => format!("it has {} characters", name.len()),
        None => return Ok(()),
    };
    let shown: String = name.chars().take(80).collect();
    Err(ConfigError::new(
        ConfigErrorKind::Name,
        format!(
            "{shown:?} cannot be a {what}, because {problem}: use 1 to {MOST} of a-z, A-Z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        ),
    ))
}

fn fits(index: usize, c: char) -> bool {
    c.is_ascii_alphanumeric() || index > 0 && matches!(c, '.' | '_' | '-')
}

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
    /// [uncounted](super::store::DecidedBy::Off) decision.
    Off,
    /// The policy is only tried out: layers decide, count and log the requests that it would have refused, and let them pass; clients do not
    /// see it. [`RateLimiter`](super::RateLimiter)'s own methods answer as always, because their callers enforce the answer.
    Shadow,
    /// The policy is enforced.
    #[default]
    Enforce,
}

/// The treatment of a request while the store cannot be reached. Written `local`, `allow` and `deny`, or as a quota: `1000/s`.
///
/// Handles, layers and attributes treat every store in this way: a question without an answer becomes a decision
/// that names its maker, [`DecidedBy::Fallback`](super::store::DecidedBy::Fallback) or
/// [`DecidedBy::Outage`](super::store::DecidedBy::Outage). Only reports (a charge, a refund or a reset) stay errors,
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
    /// [`MemoryStore`](super::MemoryStore) that is made in the first outage and lives as long as the store. Units that it admits count
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
