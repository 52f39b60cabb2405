//! Counts of times in parts that grow with the time: [`Histogram`].

/// Parts of an octave, so that a part is at most a sixteenth wider than it is long.
const PARTS: usize = 1 << BITS;
const BITS: u32 = 4;
/// Longer times count as this one: 19 hours.
pub(super) const LONGEST_US: u64 = (1 << 36) - 1;

/// Times in microseconds, counted by their size.
#[derive(Clone, Debug)]
pub(super) struct Histogram(Box<[u32]>);

impl Histogram {
    pub(super) fn new() -> Self {
        Self(vec![0; part_of(LONGEST_US) + 1].into_boxed_slice())
    }

    pub(super) fn add(&mut self, us: u64) {
        let count = &mut self.0[part_of(us.min(LONGEST_US))];
        *count = count.saturating_add(1);
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The time that this many percent are below, as if the times of a part were spread evenly over it. Zero without times.
    pub(super) fn percentile_us(&self, percent: u64) -> u64 {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let mut below = 0;
        for (part, count) in self.0.iter().enumerate() {
            let count = u64::from(*count);
            if 100 * (below + count) >= percent * all && count > 0 {
                // The middle of the time's own share of the part; for a single time, the middle of the part.
                let above = (percent * all).saturating_sub(100 * below).max(1);
                return begin_of(part) + width_of(part) * above / (100 * count);
            }
            below += count;
        }
        0
    }
}

fn part_of(us: u64) -> usize {
    let octave = us.checked_ilog2().unwrap_or(0).saturating_sub(BITS);
    octave as usize * PARTS + usize::try_from(us >> octave).unwrap_or(usize::MAX)
}

fn begin_of(part: usize) -> u64 {
    let octave = (part / PARTS).saturating_sub(1);
    ((part - octave * PARTS) as u64) << octave
}

fn width_of(part: usize) -> u64 {
    1 << (part / PARTS).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_part_begins_where_the_one_before_it_ends() {
        let parts = Histogram::new().0.len();
        assert_eq!(begin_of(0), 0);
        for part in 1..parts {
            assert_eq!(begin_of(part), begin_of(part - 1) + width_of(part - 1), "part {part}");
            assert_eq!((part_of(begin_of(part)), part_of(begin_of(part) - 1)), (part, part - 1));
        }
        assert_eq!(begin_of(parts - 1) + width_of(parts - 1), LONGEST_US + 1);
    }

    #[test]
    fn a_histogram_without_times_has_no_percentile() {
        assert_eq!(Histogram::new().percentile_us(50), 0);
    }

    proptest! {
        #[test]
        fn the_median_is_that_of_the_sorted_times_up_to_a_sixteenth(
            mut times in prop::collection::vec((0_u32..40).prop_flat_map(|bits| 0..1_u64 << bits), 1..200)
        ) {
            let mut histogram = Histogram::new();
            times.iter().for_each(|us| histogram.add(*us));
            times.sort_unstable();
            let exact = times[(times.len() - 1) / 2].min(LONGEST_US);
            let median = histogram.percentile_us(50);
            prop_assert!(median.abs_diff(exact) <= exact / 16 + 1, "{} is not about {}", median, exact);
        }
    }
}
