//! What may be admitted at most, worked out from the algorithms' definitions and from nothing that the library computes.

use sluicegate_core::{Algorithm, Quota};

/// What one key may spend, as long as one store keeps count.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    is_window: bool,
    limit: i128,
    burst: i128,
    period_us: i128,
}

/// Units that were admitted at some moment between two, in microseconds of the shared store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Not earlier.
    pub from_us: u64,
    /// Not later.
    pub to_us: u64,
    /// How many.
    pub units: u64,
}

/// Whoever counts forgot units at some moment between two, in microseconds of that one's clock: they may be admitted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Not earlier.
    pub from_us: u64,
    /// Not later.
    pub to_us: u64,
    /// How many; more than there may be stands for all.
    pub units: u64,
}

impl Loss {
    /// All was forgotten.
    pub const ALL: u64 = u64::MAX;
}

/// More was admitted than the law allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// When the first unit too many was admitted.
    pub at_us: u64,
    /// By how many units the law was broken at worst, rounded up.
    pub units: u64,
}

impl Law {
    /// What this algorithm allows.
    #[must_use]
    pub fn of(algorithm: Algorithm, quota: &Quota) -> Self {
        let is_window =
            !matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_));
        Self {
            is_window,
            limit: quota.limit().into(),
            burst: quota.burst_size().into(),
            period_us: quota.period().as_micros().try_into().expect("a period is shorter than an age"),
        }
    }

    /// The law of one of several that are on their own: of each number its part, rounded up.
    #[must_use]
    pub fn share(self, of: u64) -> Self {
        let part = |number: i128| (number + i128::from(of) - 1) / i128::from(of);
        Self { limit: part(self.limit), burst: part(self.burst), ..self }
    }

    /// Checks everything that one key was admitted: in any span of t that is B + t/T in a bucket, and in each window its limit.
    /// Each loss admits what was forgotten again, at most a burst, or a limit.
    ///
    /// Takes as long as sorting the admissions.
    ///
    /// # Errors
    /// When more was admitted.
    pub fn check(&self, admissions: &[Admission], losses: &[Loss]) -> Result<(), Excess> {
        if self.is_window {
            self.check_windows(admissions, losses)
        } else {
            self.check_spans(admissions, losses)
        }
    }

    fn check_windows(&self, admissions: &[Admission], losses: &[Loss]) -> Result<(), Excess> {
        let window = |at_us: u64| i128::from(at_us) / self.period_us;
        // What may have fallen into either of two windows surely fell into neither.
        let mut sure: Vec<_> =
            admissions.iter().filter(|one| window(one.from_us) == window(one.to_us)).collect();
        sure.sort_by_key(|one| one.to_us);
        let mut first = None;
        let mut worst = 0;
        for all in sure.chunk_by(|a, b| window(a.to_us) == window(b.to_us)) {
            let lost = losses
                .iter()
                .filter(|loss| (window(loss.from_us)..=window(loss.to_us)).contains(&window(all[0].to_us)));
            let lost = lost.count();
            let most = self.limit * (1 + i128::try_from(lost).expect("losses are few"));
            let mut units = 0;
            for one in all {
                units += i128::from(one.units);
                if units > most {
                    first.get_or_insert(one.to_us);
                    worst = worst.max(units - most);
                }
            }
        }
        first.map_or(Ok(()), |at_us| Err(excess(at_us, worst)))
    }

    /// For every two moments x and y: all that surely lies between them is at most B + (y - x) L / P. So for each y the largest
    /// sum of x L + P (units since x) has to be at most P B + y L.
    fn check_spans(&self, admissions: &[Admission], losses: &[Loss]) -> Result<(), Excess> {
        let mut begins: Vec<u64> = admissions.iter().map(|one| one.from_us).collect();
        begins.extend(losses.iter().map(|loss| loss.to_us));
        begins.sort_unstable();
        begins.dedup();
        let place = |at_us: u64| begins.partition_point(|begin| *begin < at_us);
        let mut spans = Spans::of(begins.len());
        let units = admissions.iter().map(|one| (one.to_us, place(one.from_us), i128::from(one.units)));
        let lost = losses
            .iter()
            .map(|loss| (loss.from_us, place(loss.to_us), -i128::from(loss.units).min(self.burst)));
        let mut ends: Vec<_> = units.chain(lost).collect();
        ends.sort_unstable_by_key(|(to_us, place, units)| (*to_us, *units > 0, *place));
        let (mut first, mut worst) = (None, 0);
        for (to_us, place, units) in ends {
            if units > 0 {
                spans.begin(place, i128::from(begins[place]) * self.limit);
            }
            spans.add(place, units * self.period_us);
            // A microsecond at either end is what whole microseconds cannot tell.
            let most = self.burst * self.period_us + (i128::from(to_us) + 2) * self.limit;
            let over = spans.largest() - most;
            if units > 0 && over > 0 {
                first.get_or_insert(to_us);
                worst = worst.max((over + self.period_us - 1) / self.period_us);
            }
        }
        first.map_or(Ok(()), |at_us| Err(excess(at_us, worst)))
    }
}

fn excess(at_us: u64, units: i128) -> Excess {
    Excess { at_us, units: u64::try_from(units).unwrap_or(u64::MAX) }
}

/// The largest, over all places that have begun, of the place's own number and all that was added there and at later places: a
/// tree over the places, of which each change touches one way to the root.
struct Spans {
    places: usize,
    /// Of each part its sum, and its largest.
    parts: Vec<(i128, i128)>,
}

impl Spans {
    /// Far below all numbers, and far from the end of them.
    const NONE: i128 = i128::MIN / 4;

    fn of(places: usize) -> Self {
        let places = places.next_power_of_two();
        Self { places, parts: vec![(0, Self::NONE); 2 * places] }
    }

    fn begin(&mut self, place: usize, own: i128) {
        let (sum, largest) = &mut self.parts[self.places + place];
        // What is there already holds its own number.
        if *largest < Self::NONE / 2 {
            *largest = own + *sum;
        }
    }

    fn add(&mut self, place: usize, number: i128) {
        let mut part = self.places + place;
        self.parts[part].0 += number;
        self.parts[part].1 += number;
        while part > 1 {
            part /= 2;
            self.sum_up(part);
        }
    }

    fn sum_up(&mut self, part: usize) {
        let [(left, left_most), (right, right_most)] = [self.parts[2 * part], self.parts[2 * part + 1]];
        self.parts[part] = (left + right, right_most.max(left_most + right));
    }

    fn largest(&self) -> i128 {
        self.parts[1].1
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_core::algorithm::Anchor;
    use sluicegate_tests::random::Random;

    use super::*;

    fn at(times_us: &[u64]) -> Vec<Admission> {
        times_us.iter().map(|at_us| Admission { from_us: *at_us, to_us: *at_us, units: 1 }).collect()
    }

    fn bucket() -> Law {
        Law::of(Algorithm::Gcra, &"2/2s".parse().expect("it is a quota"))
    }

    #[test]
    fn a_bucket_that_is_used_up_and_refilled_is_lawful() {
        bucket().check(&at(&[0, 0, 1_000_000, 2_000_000, 5_000_000, 5_000_000]), &[]).unwrap();
    }

    #[test]
    fn one_unit_too_many_is_found_wherever_it_is() {
        assert_eq!(bucket().check(&at(&[0, 0, 500_000]), &[]), Err(Excess { at_us: 500_000, units: 1 }));
        bucket().check(&at(&[0, 9_000_000, 9_000_000, 9_900_000]), &[]).unwrap_err();
        bucket()
            .check(&at(&[0, 0, 500_000]), &[Loss { from_us: 400_000, to_us: 400_000, units: 1 }])
            .unwrap();
        let window = Law::of(Algorithm::FixedWindow(Anchor::Epoch), &"2/2s".parse().expect("it is a quota"));
        window.check(&at(&[1_999_999, 1_999_999, 2_000_000, 2_000_000]), &[]).unwrap();
        window.check(&at(&[2_000_000, 2_000_000, 3_999_999]), &[]).unwrap_err();
    }

    #[test]
    fn what_was_admitted_at_some_moment_counts_only_in_spans_that_hold_all_of_them() {
        let late = Admission { from_us: 0, to_us: 1_000_000, units: 1 };
        bucket().check(&[at(&[0, 0]), vec![late]].concat(), &[]).unwrap();
        bucket().check(&[at(&[0, 0]), vec![Admission { to_us: 900_000, ..late }]].concat(), &[]).unwrap_err();
    }

    /// Each span by itself.
    fn slowly(law: &Law, admissions: &[Admission], losses: &[Loss]) -> bool {
        let begins = || admissions.iter().map(|one| one.from_us).chain(losses.iter().map(|loss| loss.to_us));
        begins().all(|x| {
            admissions.iter().map(|one| one.to_us).filter(|y| *y >= x).all(|y| {
                let inside = admissions.iter().filter(|one| one.from_us >= x && one.to_us <= y);
                let units: i128 = inside.map(|one| i128::from(one.units)).sum();
                let lost = losses.iter().filter(|loss| loss.to_us >= x && loss.from_us <= y);
                let lost: i128 = lost.map(|loss| i128::from(loss.units).min(law.burst)).sum();
                let most = (law.burst + lost) * law.period_us;
                units * law.period_us <= most + i128::from(y - x + 2) * law.limit
            })
        })
    }

    #[test]
    fn all_spans_at_once_agree_with_each_by_itself() {
        let mut random = Random::new(7);
        let mut broken = 0;
        for _ in 0..2_000 {
            let span = 1_000_000 + random.below(8_000_000);
            let admissions: Vec<_> = (0..random.below(9))
                .map(|_| {
                    let from_us = random.below(span);
                    let to_us = from_us + random.below(3) * random.below(500_000);
                    Admission { from_us, to_us, units: 1 + random.below(2) }
                })
                .collect();
            let losses: Vec<_> = (0..random.below(2))
                .map(|_| {
                    let from_us = random.below(span);
                    Loss { from_us, to_us: from_us + random.below(100_000), units: 1 + random.below(3) }
                })
                .collect();
            let is_lawful = slowly(&bucket(), &admissions, &losses);
            assert_eq!(bucket().check(&admissions, &losses).is_ok(), is_lawful, "{admissions:?} {losses:?}");
            broken += u32::from(!is_lawful);
        }
        assert!((200..1_800).contains(&broken), "{broken}");
    }
}
