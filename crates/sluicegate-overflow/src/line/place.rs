//! A place in line: [`LinePlace`].

/// A place in the line of a room: its number in the order of arrival, and its lot.
///
/// ```
/// use sluicegate_overflow::line::LinePlace;
///
/// // Four came before the room opened: the one with the lowest lot is first.
/// let lots = [3 << 30, 1 << 30, 0, 2 << 30];
/// let ranks = [0, 1, 2, 3].map(|number| LinePlace::new(number, lots[number as usize]).rank(4));
/// assert_eq!(ranks, [3, 1, 0, 2]);
/// // The fifth came later, so its number is its rank.
/// assert_eq!(LinePlace::new(4, 0).rank(4), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LinePlace {
    /// The number of places that were taken before, since the line began. Visitors that enter without a place, while the room is open to all,
    /// have numbers of their own, above those of all places.
    pub number: u64,
    /// A number that was drawn when the place was taken.
    pub lot: u32,
}

impl LinePlace {
    /// The place of this number with this lot.
    pub const fn new(number: u64, lot: u32) -> Self {
        Self { number, lot }
    }

    /// The rank among all, where the first `early` numbers came before the room opened.
    ///
    /// These places are ranked by lot: `lot * early / 2^32`, so that nothing has to be sorted and a rank is known before all have come. Two
    /// places may have the same rank; both are then due at the same moment.
    #[must_use]
    pub const fn rank(self, early: u64) -> u64 {
        if self.number >= early {
            return self.number;
        }
        // Below `early`, because the lot is below 2^32; exact in 2^53 for two million early comers.
        (self.lot as u64).saturating_mul(early) >> 32
    }
}
