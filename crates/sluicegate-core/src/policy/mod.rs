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

mod assemble;
#[cfg(feature = "limiter")]
mod board;
mod builder;
mod mistaken;
mod name;
mod options;
#[cfg(feature = "limiter")]
mod overrides;
#[cfg(feature = "limiter")]
mod quotas;
mod settings;
mod share;
mod suspension;
mod tightening;

use std::fmt;
use std::time::Duration;

pub(crate) use self::assemble::MOST_KEYS;
#[cfg(feature = "limiter")]
pub(crate) use self::board::Board;
pub use self::builder::PolicyBuilder;
pub use self::name::check_name;
pub use self::options::{OnExceeded, OnFull, OnOutage, PolicyMode};
#[cfg(feature = "limiter")]
pub use self::overrides::{Override, OverrideBuilder};
#[cfg(feature = "limiter")]
pub use self::quotas::Quotas;
use self::settings::PolicySettings;
pub use self::suspension::Suspension;
pub use self::tightening::Tightening;
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
    #[inline]
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
