//! Lists of a few values, in little code: a request has that many quotas, limits and keys.

use smallvec::{Array, SmallVec};

/// A list of these. `SmallVec`'s own `FromIterator` has the iterator's code twice, and is four times as much for each that it is
/// compiled for.
#[inline]
pub(crate) fn few<A: Array>(items: impl IntoIterator<Item = A::Item>) -> SmallVec<A> {
    let mut few = SmallVec::new();
    for item in items {
        few.push(item);
    }
    few
}

/// Sorts by this; those that are equal stay in their order. By insertion: the standard library's code for long lists is compiled
/// once for each type and key, and is twenty times as much.
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
