//! The layout of a state and its account in the words of a slot.
//!
//! ```text
//! word 0   moment of rest (52 bits)                          | aux of a one-word state (12 bits)
//! word 1   aux of a two-word state
//! last     account, in tables with accounts
//! ```
//!
//! All accesses are `Relaxed`: the lock of the set orders them, and a gauge that reads without the lock needs no order.
//!
//! 52 bits of microseconds reach to the year 2112, the bound of every
//! [`Clock`](crate::clock::Clock).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::State;
use crate::memory::account::BucketAccount;

/// A table's entry of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::memory) struct SlotWords {
    pub(in crate::memory) state: State,
    /// Only in tables with accounts.
    pub(in crate::memory) account: BucketAccount,
    /// The number of the plan that the state is counted by: 0 for the policy's own quota.
    pub(in crate::memory) plan: u16,
}

const LOW_BITS: u32 = 12;
const LOW_MAX: u64 = (1 << LOW_BITS) - 1;
/// The bits of an `aux` stored beside the time, and above them the bits of a table with plans.
pub(super) const AUX_BITS: u32 = LOW_BITS;
const TIME_MAX: u64 = u64::MAX >> LOW_BITS;

/// When the state of a slot is at rest. One read, so that it may be asked without the lock, for a
/// gauge.
#[inline]
pub(super) fn until_of<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> u64 {
    words[0].load(Ordering::Relaxed) >> LOW_BITS
}

/// The words of a slot that hold the state; with accounts, the last word is the account.
pub(in crate::memory) const fn state_words<const WORDS: usize, const ACCOUNTS: bool>() -> usize {
    if ACCOUNTS { WORDS - 1 } else { WORDS }
}

#[inline]
pub(super) fn load<const WORDS: usize, const ACCOUNTS: bool>(words: &[AtomicU64; WORDS]) -> SlotWords {
    let first = words[0].load(Ordering::Relaxed);
    let aux = match state_words::<WORDS, ACCOUNTS>() {
        1 => first & LOW_MAX,
        _ => words[1].load(Ordering::Relaxed),
    };
    let account = if ACCOUNTS {
        BucketAccount::of(words[WORDS - 1].load(Ordering::Relaxed))
    } else {
        BucketAccount::default()
    };
    SlotWords { state: State::new(first >> LOW_BITS, aux), account, plan: 0 }
}

#[inline]
pub(super) fn store<const WORDS: usize, const ACCOUNTS: bool>(words: &[AtomicU64; WORDS], kept: SlotWords) {
    let SlotWords { state, account, .. } = kept;
    let low = match state_words::<WORDS, ACCOUNTS>() {
        1 => state.aux & LOW_MAX,
        _ => {
            words[1].store(state.aux, Ordering::Relaxed);
            0
        }
    };
    if ACCOUNTS {
        words[WORDS - 1].store(account.word(), Ordering::Relaxed);
    }
    words[0].store(state.until_us.min(TIME_MAX) << LOW_BITS | low, Ordering::Relaxed);
}
