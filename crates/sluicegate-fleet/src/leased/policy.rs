//! The state kept of a policy, and whether it may be leased: [`LeasedPolicy`].

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{PreparedPolicy, WeakPolicy};
use sluicegate_core::{OnExceeded, Policy};
use smallvec::SmallVec;

use super::measure::Measure;
use super::refill::Batch;

impl Unleased {
    /// The reason why this policy is not leased with these settings; `None` if it is.
    ///
    /// ```
    /// use sluicegate_core::Policy;
    /// use sluicegate_fleet::leased::{Batch, Unleased};
    ///
    /// let search = Policy::gcra("search", "1000/min").build()?;
    /// assert_eq!(Unleased::why(&search, &Batch::new()), None);
    /// let login = Policy::gcra("login", "3/min").build()?;
    /// assert_eq!(Unleased::why(&login, &Batch::new()), Some(Unleased::TooSmall));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn why(policy: &Policy, batch: &Batch) -> Option<Self> {
        measures(policy, batch).err()
    }
}

/// The state that a [`Leased`](super::Leased) store keeps of a policy.
pub(super) struct LeasedPolicy {
    /// The lifetime of its units, by quota; or the reason why it is not leased.
    measures: Result<SmallVec<[Measure; 2]>, Unleased>,
    /// The policy prepared by the outer store. Weak, so that idle keys do not keep it open.
    prepared: OnceLock<WeakPolicy>,
    /// Whether another policy has replaced it. Its leases were handed over then.
    is_replaced: AtomicBool,
}

impl LeasedPolicy {
    pub(super) fn new(policy: &Policy, batch: &Batch) -> Self {
        Self {
            measures: measures(policy, batch),
            prepared: OnceLock::new(),
            is_replaced: AtomicBool::new(false),
        }
    }

    /// Its quotas, if it is leased.
    #[inline]
    pub(super) fn measures(&self) -> Option<&[Measure]> {
        // Relaxed, here and below: a lease that is taken at the same moment is dropped when its answer comes, or a refill later.
        self.measures.as_deref().ok().filter(|_| !self.is_replaced.load(Ordering::Relaxed))
    }

    /// Ends leasing under this policy.
    pub(super) fn replaced(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// Remembers the policy prepared by the outer store, to give leases back without a request.
    pub(super) fn remember(&self, policy: &PreparedPolicy) {
        _ = self.prepared.get_or_init(|| policy.downgrade());
    }

    /// The policy prepared by the outer store, if it is still open.
    pub(super) fn prepared(&self) -> Option<PreparedPolicy> {
        self.prepared.get()?.upgrade()
    }
}

/// The measures of all quotas, or the first reason why this policy is not leased.
///
/// Half of [`MAX_QUOTAS`] is the most, because a request asks for its cost and for a lease in one call, each with all quotas.
fn measures(policy: &Policy, batch: &Batch) -> Result<SmallVec<[Measure; 2]>, Unleased> {
    if matches!(policy.on_exceeded(), OnExceeded::Wait { .. }) {
        return Err(Unleased::Waits);
    }
    if policy.suspension().is_some() || policy.is_of_suspension() {
        return Err(Unleased::Suspends);
    }
    if policy.quotas().len() > MAX_QUOTAS / 2 {
        return Err(Unleased::TooManyQuotas);
    }
    let measures: SmallVec<[Measure; 2]> =
        policy.quotas().iter().map(Measure::new).collect::<Result<_, _>>()?;
    if measures.iter().all(|measure| batch.is_for(measure)) { Ok(measures) } else { Err(Unleased::TooSmall) }
}

/// The reason why requests of a policy pass through a [`Leased`](super::Leased) store to the inner store.
///
/// It is not an error: the inner store decides such a policy exactly, with a call for each request.
/// [`Leased::unleased`](super::Leased) lists open policies of this kind.
///
/// | reason | to have it leased |
/// |---|---|
/// | [`Log`](Self::Log) | use `sliding-counter`, or GCRA, if the moment of each unit does not matter |
/// | [`Queue`](Self::Queue), [`Waits`](Self::Waits) | refuse requests instead of delaying them |
/// | [`Suspends`](Self::Suspends) | suspend by a separate policy, beside a leased one |
/// | [`TooSmall`](Self::TooSmall) | raise the share or the quota; a small quota gains little by a lease |
/// | [`TooManyQuotas`](Self::TooManyQuotas) | split them into two policies |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unleased {
    /// A sliding log knows the moment of each unit, and a leased unit has none until it is spent.
    Log,
    /// A leaky bucket that shapes gives each request its turn.
    Queue,
    /// An unknown key [starts](sluicegate_core::Quota::starting_with) with less than a burst, and an instance that spends ahead does not
    /// know whether the key is unknown again.
    Starts,
    /// Its requests wait for their turn.
    Waits,
    /// It suspends keys by their refusals, which the inner store counts.
    Suspends,
    /// The [share](super::Batch::share) of its smallest quota is less than two units.
    TooSmall,
    /// It has more than half of [`MAX_QUOTAS`](sluicegate_core::policy::MAX_QUOTAS): a lease is requested beside a spend, and both are
    /// decided together.
    TooManyQuotas,
}

impl fmt::Display for Unleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "a sliding log is not leased",
            Self::Queue => "a queue is not leased",
            Self::Starts => "a policy whose keys start with less than a burst is not leased",
            Self::Waits => "a policy whose requests wait is not leased",
            Self::Suspends => "a policy that suspends keys is not leased",
            Self::TooSmall => "its share of the smallest quota is less than two units",
            Self::TooManyQuotas => "a policy of more than 8 quotas is not leased",
        })
    }
}
