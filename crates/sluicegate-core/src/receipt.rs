//! The spend of a decision, to be given back at most once: [`Receipt`].

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::State;
use crate::few::few;
use crate::policy::Policy;
use crate::text::listed;

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

listed!(DecidedBy, "All of them, in their order.", "The word for this part in metrics, logs and traces.":
    Store => "store", Lease => "lease", Cache => "cache", Fallback => "fallback", Outage => "outage", Off => "off");

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

/// The version of the encoding, which is the first byte.
const VERSION: u8 = 1;

/// The most quotas of one receipt.
const MOST_QUOTAS: u64 = super::policy::MAX_QUOTAS as u64;

impl Receipt {
    /// Turns the receipt into bytes, for a service with callers that settle in a later call. `None` if the receipt is from
    /// [one of several places](Self::part); then it is lost.
    ///
    /// The type guarantees that a receipt is genuine and used once. For bytes, the program has to: sign them, and accept them once.
    ///
    /// ```
    /// use sluicegate_core::limiter::Receipt;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let tokens = Policy::gcra("tokens", "1000/h").refunds().on(&MemoryStore::new())?;
    /// let mut decision = tokens.check("ada").cost(800).now().expect("memory answers at once")?;
    /// let bytes = decision.take_receipt(0).and_then(Receipt::into_bytes).expect("it has spent");
    ///
    /// let mut receipt = Receipt::from_bytes(&bytes).expect("the bytes are unchanged");
    /// tokens.refund("ada", 500).of(&mut receipt).now().expect("memory answers at once")?;
    /// assert_eq!(tokens.peek("ada").now().expect("memory answers at once")?.remaining(), 700);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the receipt exists only in these bytes"]
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        if self.part.is_some() {
            return None;
        }
        let mut bytes = vec![VERSION, self.basis as u8];
        write(&mut bytes, self.at_us);
        write(&mut bytes, self.costs.len() as u64);
        self.costs.iter().for_each(|cost| write(&mut bytes, *cost));
        write(&mut bytes, self.traces.len() as u64);
        for Trace { found, given, birth, before, after, floor } in &self.traces {
            [*found, *given, *birth, before.until_us, before.aux, after.until_us, after.aux]
                .into_iter()
                .for_each(|number| write(&mut bytes, number));
            bytes.push(floor.is_some().into());
            if let Some(floor) = floor {
                write(&mut bytes, floor.until_us);
                write(&mut bytes, floor.aux);
            }
        }
        Some(bytes)
    }

    /// Reads a receipt from the bytes of [`into_bytes`](Self::into_bytes). `None` if they are not a receipt.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.byte()? != VERSION {
            return None;
        }
        let basis = *DecidedBy::ALL.get(usize::from(rest.byte()?))?;
        let at_us = rest.number()?;
        let costs = (0..rest.count()?).map(|_| rest.number()).collect::<Option<Vec<_>>>()?;
        let traces = (0..rest.count()?).map(|_| rest.trace()).collect::<Option<Vec<_>>>()?;
        rest.0.is_empty().then(|| Self::new(basis, at_us, costs, traces))
    }
}

/// LEB128: seven bits in each byte, the lowest first; the high bit says that more bytes follow.
fn write(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = (number & 0x7f).to_le_bytes()[0];
        number >>= 7;
        if number == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

/// The unread bytes.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A number of quotas.
    fn count(&mut self) -> Option<u64> {
        self.number().filter(|count| *count <= MOST_QUOTAS)
    }

    fn state(&mut self) -> Option<State> {
        Some(State::new(self.number()?, self.number()?))
    }

    fn trace(&mut self) -> Option<Trace> {
        let (found, given, birth) = (self.number()?, self.number()?, self.number()?);
        let (before, after) = (self.state()?, self.state()?);
        let floor = match self.byte()? {
            0 => None,
            1 => Some(self.state()?),
            _ => return None,
        };
        Some(Trace { found, given, birth, before, after, floor })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn states() -> impl Strategy<Value = State> {
        (any::<u64>(), any::<u64>()).prop_map(|(until_us, aux)| State::new(until_us, aux))
    }

    fn traces() -> impl Strategy<Value = Trace> {
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
        (numbers, states(), states(), option::of(states())).prop_map(
            |((found, given, birth), before, after, floor)| Trace {
                found,
                given,
                birth,
                before,
                after,
                floor,
            },
        )
    }

    proptest! {
        #[test]
        fn bytes_of_a_receipt_give_an_equal_receipt(
            basis in 0..6_u8,
            at_us in any::<u64>(),
            costs in vec(any::<u64>(), 0..5),
            traces in vec(traces(), 0..5),
        ) {
            let receipt = Receipt::new(DecidedBy::ALL[usize::from(basis)], at_us, costs, traces);
            let shown = format!("{receipt:?}");
            let bytes = receipt.into_bytes().unwrap();
            prop_assert_eq!(Receipt::from_bytes(&bytes).map(|read| format!("{read:?}")), Some(shown));
            for end in 0..bytes.len() {
                prop_assert!(Receipt::from_bytes(&bytes[..end]).is_none(), "a prefix is not a receipt");
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
            if let Some(receipt) = Receipt::from_bytes(&bytes) {
                prop_assert!(receipt.into_bytes().is_some());
            }
        }
    }
}
