//! Spreads units over several parts, in integers.

/// Takes up to `cost` from these rooms, in order; returns the units taken from each, and leaves in `cost` the units that did not fit.
pub(super) fn fill(cost: &mut u64, rooms: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let taken = rooms.into_iter().map(|room| {
        let taken = room.min(*cost);
        *cost -= taken;
        taken
    });
    taken.collect()
}

/// Spreads units over parts by their weights, each at most its room; the excess goes where there is room. The parts sum to `units`, or to
/// all rooms.
///
/// Each part ends at the rounded sum of all weights up to it, so the roundings do not add up: no part is off by a unit or more, and no unit
/// is lost or made.
pub(super) fn spread(units: u64, weights: &[u64], rooms: &[u64]) -> Vec<u64> {
    let whole: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let (mut before, mut given) = (0, Vec::with_capacity(rooms.len()));
    for (weight, room) in weights.iter().zip(rooms) {
        let from = before;
        before += u128::from(*weight);
        let cut = |weights: u128| u128::from(units).saturating_mul(weights) / whole.max(1);
        given.push(u64::try_from(cut(before) - cut(from)).unwrap_or(units).min(*room));
    }
    let mut left = units - given.iter().sum::<u64>();
    let more =
        fill(&mut left, rooms.iter().zip(&given).map(|(room, given)| room - given).collect::<Vec<_>>());
    given.iter().zip(more).map(|(given, more)| given + more).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_units_are_spread_as_far_as_there_is_room(
            units in 0..1_000_u64,
            parts in prop::collection::vec((1..50_u64, 0..200_u64), 1..9),
        ) {
            let (weights, rooms): (Vec<u64>, Vec<u64>) = parts.into_iter().unzip();
            let given = spread(units, &weights, &rooms);
            prop_assert!(given.iter().zip(&rooms).all(|(given, room)| given <= room));
            prop_assert_eq!(given.iter().sum::<u64>(), units.min(rooms.iter().sum()));
        }
    }

    #[test]
    fn with_room_for_all_each_part_has_its_weight() {
        assert_eq!(spread(25, &[1, 1], &[100, 100]), [12, 13]);
        assert_eq!(spread(10, &[1, 1], &[2, 100]), [2, 8]);
    }
}
