//! What may be admitted at most, worked out from the algorithms' definitions and from nothing that the library computes.

use std::time::{Duration, Instant};

/// What one key may spend, as long as one store keeps count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u64,
    pub(crate) period: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// With a burst as large as the limit.
    Gcra,
    /// Windows that begin at multiples of the period; a sliding counter admits no more than that in any of its windows.
    Window,
}

/// One unit that was admitted at some moment between two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

impl Law {
    /// The most that is admitted within any span of this length.
    fn most(&self, span: Duration) -> u64 {
        let units = |span: Duration| {
            let units = span.as_micros() * u128::from(self.limit) / self.period.as_micros();
            u64::try_from(units).unwrap()
        };
        match self.algorithm {
            Algorithm::Gcra => self.limit + units(span),
            // A span touches one window more than it holds beginnings of windows.
            Algorithm::Window => {
                let beginnings = span.as_micros() / self.period.as_micros() + 1;
                self.limit * (u64::try_from(beginnings).unwrap() + 1)
            }
        }
    }

    /// The law of one of several instances that are on their own.
    pub(crate) fn share(self, instances: u64) -> Self {
        Self { limit: self.limit.div_ceil(instances), ..self }
    }

    /// Checks one key: for every two admissions, all that surely lie between them must fit. Each time that a store loses
    /// its state, it may admit a whole limit again.
    pub(crate) fn check(&self, admissions: &[Admission], losses: u64) -> Result<(), String> {
        let mut by_end = admissions.to_vec();
        by_end.sort_by_key(|admission| admission.to);
        for first in admissions {
            let mut count = 0;
            for last in by_end.iter().filter(|last| last.from >= first.from) {
                count += 1;
                let span = last.to.duration_since(first.from);
                let most = self.most(span) + losses * self.limit;
                if count > most {
                    return Err(format!(
                        "{count} admitted within {span:?}, and {most} is the most: {self:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: Law = Law { algorithm: Algorithm::Gcra, limit: 2, period: Duration::from_secs(2) };
    const WINDOW: Law = Law { algorithm: Algorithm::Window, limit: 3, period: Duration::from_secs(2) };

    fn at(start: Instant, times_ms: &[u64]) -> Vec<Admission> {
        let admission = |ms: &u64| {
            let from = start + Duration::from_millis(*ms);
            Admission { from, to: from + Duration::from_millis(1) }
        };
        times_ms.iter().map(admission).collect()
    }

    #[test]
    fn what_the_definitions_allow_is_lawful() {
        let now = Instant::now();
        BUCKET.check(&at(now, &[0, 0, 1_000, 2_000, 5_000, 5_000]), 0).unwrap();
        // Three before the border, three after it.
        WINDOW.check(&at(now, &[1_999, 1_999, 1_999, 2_000, 2_000, 2_000, 4_000]), 0).unwrap();
    }

    #[test]
    fn one_unit_too_many_is_found_wherever_it_is() {
        let now = Instant::now();
        BUCKET.check(&at(now, &[0, 0, 500]), 0).unwrap_err();
        BUCKET.check(&at(now, &[0, 9_000, 9_000, 9_900]), 0).unwrap_err();
        WINDOW.check(&at(now, &[0, 0, 0, 0, 1_990, 1_990, 1_990]), 0).unwrap_err();
        let twice_a_window = [0, 0, 0, 0, 0, 0, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000, 3_900];
        WINDOW.check(&at(now, &twice_a_window), 0).unwrap_err();
    }

    #[test]
    fn a_loss_of_state_excuses_one_limit_and_no_more() {
        let now = Instant::now();
        BUCKET.check(&at(now, &[0, 0, 1, 1]), 1).unwrap();
        BUCKET.check(&at(now, &[0, 0, 1, 1, 2]), 1).unwrap_err();
    }

    #[test]
    fn a_share_is_rounded_up() {
        assert_eq!((BUCKET.share(4).limit, WINDOW.share(2).limit), (1, 2));
    }
}
