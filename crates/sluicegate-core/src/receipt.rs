//! The spend of a decision, to be given back at most once: [`Receipt`].

mod written;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::State;
use crate::few::few;
use crate::policy::Policy;

/// The spend of one allowed ask, needed to give it back.
///
/// It cannot be cloned, and it loses the units that it gives back, whether the store's answer arrives or not: a refund
/// with a lost reply is never sent again.
///
/// A receipt that is dropped gives nothing back. To keep a part for later, [`split`](Self::split)
/// it.
#[derive(Debug)]
pub struct Receipt {
    pub(crate) basis: DecidedBy,
    pub(crate) at_us: u64,
    costs: SmallVec<[u64; 2]>,
    pub(crate) traces: SmallVec<[Trace; 1]>,
    /// The spend of the part that has decided it, if the bucket is kept in several places.
    pub(crate) part: Option<Box<SpentPart>>,
}

/// The spend of an ask in one of the places in which a bucket is kept. For authors of stores that keep one bucket in several places
/// ([`Decision::with_parts`](crate::Decision::with_parts)).
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "stores put it together")]
pub struct SpentPart {
    /// The number of the place.
    pub place: u8,
    /// The part of the policy that is kept there.
    pub policy: Arc<Policy>,
    /// The receipt of that place.
    pub receipt: Receipt,
}

/// The state of a quota's bucket when a cost was spent from it. For authors of stores.
///
/// It is kept for policies with refunds, and for turns that have not started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores put it together")]
pub struct Trace {
    /// The level of the bucket before the spend, in the measure of [`Rule::level`](crate::algorithm::Rule::level).
    pub found: u64,
    /// The amount given back to the bucket since its birth, in the same measure.
    pub given: u64,
    /// The birth number of the key's bucket, which changes after the key was at rest or forgotten. 0 if it is not kept.
    pub birth: u64,
    /// The state before.
    pub before: State,
    /// The state after.
    pub after: State,
    /// The floor that the end of a lease has replaced, for a lease from a bucket that drains: [`State::REST`] if there was none.
    pub floor: Option<State>,
}

/// The part of a service that made a decision.
///
/// Metrics use it to count decisions without the shared state. The order is that of
/// certainty: a decision made from several is as certain as the least certain of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The store that keeps the state.
    Store,
    /// This process, with units that it has leased from that store: they were spent there before, and the numbers are those known
    /// to this process.
    Lease,
    /// This process, which keeps a refusal of the store until a retry could pass.
    Cache,
    /// This process alone, with its share of the quotas, because the store could not be reached. Or
    /// the part of the store with one of the keys could not be reached, and the store decided the rest.
    Fallback,
    /// No part: the store could not be reached, and the policy determines the outcome. The numbers are those of a key at rest.
    Outage,
    /// No part: all policies that were asked are [off](crate::policy::PolicyMode::Off). The numbers are those of a key at rest.
    Off,
}

impl DecidedBy {
    /// The word for this part in metrics, logs and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lease => "lease",
            Self::Cache => "cache",
            Self::Fallback => "fallback",
            Self::Outage => "outage",
            Self::Off => "off",
        }
    }
}

impl Receipt {
    pub(crate) fn new(
        basis: DecidedBy,
        at_us: u64,
        costs: impl IntoIterator<Item = u64>,
        traces: impl IntoIterator<Item = Trace>,
    ) -> Self {
        Self { basis, at_us, costs: few(costs), traces: few(traces), part: None }
    }

    /// The store that let the ask pass, or the fallback. The receipt refers to its clock and its buckets, and is useless to any
    /// other store.
    pub fn decided_by(&self) -> DecidedBy {
        self.basis
    }

    /// When the cost began to count, in microseconds of the store's clock: at the decision, or at the turn that it waited
    /// for.
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The units of this quota that took effect and were not given back with this receipt.
    pub fn cost_of(&self, quota: u8) -> u64 {
        self.costs.get(usize::from(quota)).copied().unwrap_or(0)
    }

    /// The highest of [`cost_of`](Self::cost_of).
    pub fn cost(&self) -> u64 {
        self.costs.iter().copied().max().unwrap_or(0)
    }

    /// The state of this quota's bucket at the spend, if it is kept.
    pub fn trace(&self, quota: u8) -> Option<&Trace> {
        self.traces.get(usize::from(quota))
    }

    /// The time for which a unit of this [lease](crate::store::Mode::Lease) may be spent, if `behind` other units of the lease
    /// follow it: each quota of the policy has its own end, and the earliest counts. Zero if it is no lease.
    ///
    /// Count it from a moment before the call was sent; its end is included. Units are spent in their order, so the first unit of
    /// a lease of `n` is followed by `n - 1`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use sluicegate_core::store::{Ask, Mode, Store};
    /// use sluicegate_core::{Key, MemoryStore, Policy};
    ///
    /// let store: Arc<dyn Store> = MemoryStore::new().into();
    /// let policy = store.open(Arc::new(Policy::gcra("api", "10/s").build()?), None)?;
    /// let key = Key::from("ada");
    ///
    /// // One unit for the current request, and up to four for later requests.
    /// let spend = Ask::new(&policy, key.as_ref(), 1, Mode::Spend);
    /// let lease = Ask::new(&policy, key.as_ref(), 4, Mode::Lease);
    /// let mut decision = store.decide(&[spend, lease]).now().expect("memory answers at once")?;
    /// assert_eq!((decision.quotas()[1].spent(), decision.quotas()[1].remaining()), (4, 5));
    ///
    /// // Five units drain in half a second, the unit that was spent first.
    /// let lease = decision.take_receipt(1).expect("it has got something");
    /// let lasts = [3, 2, 1, 0].map(|behind| lease.lasts(policy.policy(), behind).as_millis());
    /// assert_eq!(lasts, [100, 200, 300, 400]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lasts(&self, policy: &Policy, behind: u64) -> Duration {
        if let Some(part) = &self.part {
            return part.receipt.lasts(&part.policy, behind);
        }
        let lasts = policy.quotas().iter().enumerate().map(|(quota, of)| {
            let trace = self.traces.get(quota).filter(|_| of.rule().can_lease());
            trace.map_or(0, |trace| of.rule().lease_lasts_us(trace.after, self.at_us, behind))
        });
        Duration::from_micros(lasts.min().unwrap_or(0))
    }

    /// A copy for the same call; never for a second one.
    pub(crate) fn copied(&self) -> Self {
        Self {
            costs: self.costs.clone(),
            traces: self.traces.clone(),
            part: self.part.as_ref().map(|part| Box::new(part.copied())),
            ..*self
        }
    }

    /// This receipt, with the spend of the part that has decided it.
    pub(crate) fn with_part(self, part: Option<SpentPart>) -> Self {
        Self { part: part.map(Box::new), ..self }
    }

    /// The part that has decided it, as [`Decision::with_parts`](crate::Decision::with_parts) said. For stores that keep one bucket in
    /// several places.
    pub fn part(&self) -> Option<&SpentPart> {
        self.part.as_deref()
    }

    /// Leaves up to `cost` units in this receipt, and returns a receipt of the rest.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let tokens = Policy::gcra("tokens", "1000/h").on(&MemoryStore::new())?;
    /// let mut decision = tokens.check("ada").cost(500).now().expect("memory answers at once")?;
    /// let mut half = decision.take_receipt(0).expect("it was allowed");
    /// let rest = half.split(200).expect("there is more");
    /// assert_eq!((half.cost(), rest.cost()), (200, 300));
    /// assert!(half.split(200).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "what is not kept cannot be given back"]
    pub fn split(&mut self, cost: u64) -> Option<Self> {
        let mut rest = self.copied();
        rest.spend(cost);
        rest.ends_no_lease();
        self.keep(cost);
        (rest.cost() > 0).then_some(rest)
    }

    /// Leaves up to `cost` units.
    fn keep(&mut self, cost: u64) {
        self.part.iter_mut().for_each(|part| part.receipt.keep(cost));
        for own in &mut self.costs {
            *own = (*own).min(cost);
        }
    }

    /// Takes out up to `cost` units.
    pub(crate) fn spend(&mut self, cost: u64) {
        self.part.iter_mut().for_each(|part| part.receipt.spend(cost));
        for left in &mut self.costs {
            *left = left.saturating_sub(cost);
        }
        self.ends_no_lease();
    }

    /// A lease ends only once: other parts of it are given back like any other spend.
    fn ends_no_lease(&mut self) {
        for trace in &mut self.traces {
            trace.floor = None;
        }
        self.part.iter_mut().for_each(|part| part.receipt.ends_no_lease());
    }
}

impl SpentPart {
    /// A copy for the same call; never for a second one.
    pub(crate) fn copied(&self) -> Self {
        Self { place: self.place, policy: Arc::clone(&self.policy), receipt: self.receipt.copied() }
    }
}
