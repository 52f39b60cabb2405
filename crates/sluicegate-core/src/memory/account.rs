//! The account of a bucket: its birth number, and the units given back to it.
//!
//! A refund identifies its units by the bucket's birth and level. Without
//! the birth, a receipt of yesterday could refill the bucket of today; without the sum of the units
//! given back since, two refunds could give back the same drained unit.

/// The account of a bucket, in one word, for policies with refunds: its birth in the high 20 bits, and in the others the
/// amount given back to it since, in the measure of its rule's level.
///
/// A bucket is born when it leaves rest. If the sum would no longer fit, the bucket counts as born again: a receipt
/// of the bucket before gives nothing back, rather than too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketAccount(u64);

const GIVEN_BITS: u32 = 44;
const GIVEN_MAX: u64 = (1 << GIVEN_BITS) - 1;
const BIRTHS: u64 = u64::MAX >> GIVEN_BITS;

impl BucketAccount {
    /// The account of the `count`th bucket born in its table. Nothing was given back to it yet.
    pub(super) fn born(count: u64) -> Self {
        // 0 is the account of a key at rest.
        Self((count % BIRTHS + 1) << GIVEN_BITS)
    }

    pub(super) fn of(word: u64) -> Self {
        Self(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn birth(self) -> u64 {
        self.0 >> GIVEN_BITS
    }

    pub(super) fn given(self) -> u64 {
        self.0 & GIVEN_MAX
    }

    /// The account after `given` more units came back; `None` if it does not fit.
    pub(super) fn plus(self, given: u64) -> Option<Self> {
        let sum = self.given().checked_add(given).filter(|sum| *sum <= GIVEN_MAX)?;
        Some(Self(self.0 - self.given() + sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_is_full_is_never_taken_for_an_emptier_one() {
        let account = BucketAccount::born(7);
        assert_eq!((account.birth(), account.given()), (8, 0));
        let full = account.plus(GIVEN_MAX).unwrap();
        assert_eq!((full.birth(), full.given()), (8, GIVEN_MAX));
        assert_eq!(full.plus(1), None);
        assert_eq!(account.plus(u64::MAX), None);
        assert_ne!(BucketAccount::born(BIRTHS - 1).birth(), 0);
    }
}
