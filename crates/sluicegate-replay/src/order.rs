//! Requests in the order of time: servers log them as they end, and several write one log.

use std::collections::VecDeque;

/// How far back a line may be and still be put in its place, in seconds of log time.
pub(crate) const REACH: u64 = 10;

const SECOND_US: u64 = 1_000_000;

/// A request and its time.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    pub(crate) at_us: u64,
    /// Whether the time was written as a whole second.
    pub(crate) is_whole: bool,
    pub(crate) what: T,
}

/// Puts requests in order within [`REACH`] of the newest one. One that comes later than that counts as of the earliest moment
/// that is still open.
#[derive(Debug)]
pub(crate) struct Order<T> {
    /// The second of the first bucket.
    first: u64,
    /// A bucket per second, up to the newest.
    seconds: VecDeque<Vec<Timed<T>>>,
    /// Buckets that are empty, for later ones.
    spare: Vec<Vec<Timed<T>>>,
    pub(crate) late: u64,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { first: 0, seconds: VecDeque::new(), spare: Vec::new(), late: 0 }
    }
}

impl<T> Order<T> {
    /// Takes a request, and hands on the seconds that are complete: all requests of one, in order.
    pub(crate) fn push(&mut self, mut timed: Timed<T>, mut complete: impl FnMut(&mut Vec<Timed<T>>)) {
        let second = timed.at_us / SECOND_US;
        if self.seconds.is_empty() {
            // As if there had been requests all the time before.
            self.first = second.saturating_sub(REACH);
        }
        let newest = self.first + self.seconds.len() as u64;
        if second >= newest + REACH {
            // A gap that is longer than the reach: nothing of before stays open.
            self.finish(&mut complete);
            self.first = second - REACH.min(second);
        }
        while second.saturating_sub(self.first) > REACH {
            if let Some(mut bucket) = self.seconds.pop_front() {
                hand_on(&mut bucket, &mut complete);
                self.spare.push(bucket);
            }
            self.first += 1;
        }
        if second < self.first {
            self.late += 1;
            timed.at_us = self.first * SECOND_US;
        }
        let place = usize::try_from(second.max(self.first) - self.first).unwrap_or_default();
        while self.seconds.len() <= place {
            self.seconds.push_back(self.spare.pop().unwrap_or_default());
        }
        self.seconds[place].push(timed);
    }

    /// Hands on all that is left.
    pub(crate) fn finish(&mut self, mut complete: impl FnMut(&mut Vec<Timed<T>>)) {
        for mut bucket in self.seconds.drain(..) {
            hand_on(&mut bucket, &mut complete);
            self.spare.push(bucket);
        }
    }
}

fn hand_on<T>(bucket: &mut Vec<Timed<T>>, complete: &mut impl FnMut(&mut Vec<Timed<T>>)) {
    if bucket.is_empty() {
        return;
    }
    if !bucket.is_sorted_by_key(|timed| timed.at_us) {
        bucket.sort_by_key(|timed| timed.at_us);
    }
    complete(bucket);
    bucket.clear();
}

/// When the request in this place of a second came, if those with whole seconds are spread over it.
pub(crate) fn spread<T>(second: &[Timed<T>], place: usize) -> u64 {
    let timed = &second[place];
    if !timed.is_whole {
        return timed.at_us;
    }
    timed.at_us + place as u64 * SECOND_US / second.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(seconds: &[u64]) -> (Vec<(u64, usize)>, u64) {
        let (mut order, mut out) = (Order::default(), Vec::new());
        let mut keep = |second: &mut Vec<Timed<usize>>| {
            out.extend(second.iter().map(|timed| (timed.at_us / SECOND_US, timed.what)));
        };
        for (what, second) in seconds.iter().enumerate() {
            order.push(Timed { at_us: second * SECOND_US, is_whole: true, what }, &mut keep);
        }
        order.finish(&mut keep);
        (out, order.late)
    }

    #[test]
    fn lines_are_put_in_order_within_ten_seconds_and_equal_times_keep_theirs() {
        assert_eq!(
            ordered(&[100, 110, 100, 105, 110]),
            (vec![(100, 0), (100, 2), (105, 3), (110, 1), (110, 4)], 0)
        );
        assert_eq!(ordered(&[100, 90]), (vec![(90, 1), (100, 0)], 0), "also at the beginning");
        assert_eq!(ordered(&[3, 0]), (vec![(0, 1), (3, 0)], 0), "also at the epoch");
    }

    #[test]
    fn later_lines_count_as_of_the_earliest_moment_that_is_open() {
        assert_eq!(ordered(&[100, 111, 100, 99]), (vec![(100, 0), (101, 2), (101, 3), (111, 1)], 2));
        assert_eq!(ordered(&[100, 100_000, 100]), (vec![(100, 0), (99_990, 2), (100_000, 1)], 1));
    }

    #[test]
    fn times_within_a_second_are_ordered_and_whole_ones_spread() {
        let timed = |at_us, is_whole| Timed { at_us, is_whole, what: () };
        let mut order = Order::default();
        order.push(timed(5_900_000, false), |_| {});
        order.push(timed(5_100_000, false), |_| {});
        order.finish(|second| {
            let times: Vec<_> = (0..second.len()).map(|place| spread(second, place)).collect();
            assert_eq!(times, [5_100_000, 5_900_000]);
        });
        let second = [timed(7_000_000, true), timed(7_000_000, true), timed(7_000_000, true)];
        assert_eq!([0, 1, 2].map(|place| spread(&second, place)), [7_000_000, 7_333_333, 7_666_666]);
    }
}
