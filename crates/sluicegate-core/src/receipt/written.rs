//! Receipts as bytes, for a spend that is settled in a later call.

use super::{DecidedBy, Receipt, Trace};
use crate::algorithm::State;

/// The version of the encoding, which is the first byte.
const VERSION: u8 = 1;

/// The most quotas of one receipt.
const MOST_QUOTAS: u64 = crate::policy::MAX_QUOTAS as u64;

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
        let basis = basis_of(rest.byte()?)?;
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

/// The variant with this number, which is its index in the list of all variants.
fn basis_of(number: u8) -> Option<DecidedBy> {
    use DecidedBy::{Cache, Fallback, Lease, Off, Outage, Store};
    [Store, Lease, Cache, Fallback, Outage, Off].get(usize::from(number)).copied()
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
            let receipt = Receipt::new(basis_of(basis).unwrap(), at_us, costs, traces);
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
