//! Short lists with little machine code, for the quotas, limits and keys of a request.

use smallvec::{Array, SmallVec};

/// Collects a short list. `SmallVec`'s own `FromIterator` contains the iterator's code twice, and compiles to four times as much for
/// each type.
#[inline]
pub(crate) fn few<A: Array>(items: impl IntoIterator<Item = A::Item>) -> SmallVec<A> {
    let mut few = SmallVec::new();
    for item in items {
        few.push(item);
    }
    few
}

/// Sorts a short list by insertion; equal values stay in their order. The standard library's sort for long lists is compiled once
/// for each type and key, and is twenty times as large.
#[inline]
pub(crate) fn sort_few<T, K: Ord>(few: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..few.len() {
        let mut at = end;
        while at > 0 && key(&few[at - 1]) > key(&few[at]) {
            few.swap(at - 1, at);
            at -= 1;
        }
    }
}
