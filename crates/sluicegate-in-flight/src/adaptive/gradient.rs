//! Latency against the latency of a service without too much to do; see [`LimitAlgorithm::Gradient`](super::LimitAlgorithm::Gradient).

use super::window::{Latency, ONE, Window};

/// The number settles where latency is this many percent of the unloaded latency, plus the headroom.
const TOLERATED: u64 = 120;
/// A window without demand moves the unloaded latency by the part that its samples are of this many, or its time of [`SETTLES_US`].
const SAMPLES: u64 = 500;
/// The time after the last sign of overload from which the number doubles again with demand.
const SETTLES_US: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gradient {
    /// The latency of windows in which no request lacked a permit.
    unloaded: Option<Latency>,
    /// The time of the last sign of overload.
    strained_us: Option<u64>,
    /// The times of the last trials of a higher and of a lower number.
    raised_us: Option<u64>,
    lowered_us: Option<u64>,
    trial: Option<Trial>,
    /// The last number at which requests lacked permits.
    last: u64,
    /// The number, and the latency there, from which the number has fallen.
    top: Option<(u64, Latency)>,
}

/// Another number for a short time while requests lack permits. If latency follows the number, the service has too much to do; if not, it
/// takes longer than it did. Latency that is too long is tried with twice the number, which refuses nothing. While overload lasts, and
/// requests are refused anyway, three fifths of the number show the unloaded latency.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Whether it is of a higher number.
    is_higher: bool,
    /// The number and the latency before it.
    before: u64,
    latency: Latency,
    /// The answers during the trial, and their latencies.
    samples: u64,
    sum_us: u64,
    low_sum_us: u64,
}

impl Gradient {
    /// Whether the latency of the service is unknown.
    pub(super) fn is_new(&self) -> bool {
        self.unloaded.is_none()
    }

    /// Whether the number doubles with demand: below half of the number that was fine, or without a recent sign of overload.
    pub(super) fn may_double(&self, limit: u64, fine: u64, window: &Window) -> bool {
        let is_fine = self.trial.is_none() && !self.is_over(limit, window);
        is_fine && (2 * limit <= fine || is_settled(self.strained_us, window))
    }

    /// Whether latency says that the number is too high.
    fn is_over(&self, limit: u64, window: &Window) -> bool {
        let (Some(unloaded), Some(latency)) = (self.unloaded, window.latency) else { return false };
        // Only as far as the fast answers are slower, too: a mixture of fast and slow ones may have changed.
        let low = percent(latency.low_us, unloaded.low_us).max(1);
        target(limit, low.min(self.slower(window))) < limit * 17 / 20
    }

    /// The number after a window; `fine` is the highest number that was fine, which falls while the service is too slow.
    pub(super) fn next(&mut self, limit: u64, fine: &mut u64, window: &Window) -> u64 {
        if window.is_faulty() {
            (self.strained_us, self.trial) = (Some(window.end_us), None);
            return limit * 9 / 10;
        }
        let Some(latency) = window.latency else { return limit };
        let Some(unloaded) = self.unloaded else {
            // The first answers are those of the fastest requests: the others are still under way.
            let mean_us = latency.mean_us.max(window.held_us);
            self.unloaded = (window.samples >= 10).then_some(Latency { mean_us, ..latency });
            return limit;
        };
        let is_over = self.is_over(limit, window);
        if self.trial.is_none() && !window.is_raised {
            self.unloaded = Some(learn(unloaded, latency, window));
        }
        if !is_over {
            *fine = limit.max(*fine);
        }
        if window.is_full {
            return self.follow(limit, fine, is_over, latency, window);
        }
        (self.trial, self.top) = (None, None);
        // Room for as many again: for a burst, and for a service that takes twice as long after a deploy.
        if is_over || window.is_raised { limit } else { limit.max(2 * window.in_flight * ONE) }
    }

    /// The number after a window in which requests lacked permits.
    fn follow(
        &mut self,
        limit: u64,
        fine: &mut u64,
        is_over: bool,
        latency: Latency,
        window: &Window,
    ) -> u64 {
        let last = std::mem::replace(&mut self.last, limit);
        if let Some(trial) = self.trial.take() {
            if let Some(number) = self.go_on(trial, limit, latency, window) {
                // A trial is no demand.
                self.last = number;
                return number;
            }
            *fine = limit.min(trial.before);
        } else if last != limit && self.may_double(limit, *fine, window) {
            return limit;
        } else if is_over && last * 4 < limit * 3 {
            // Demand has doubled it, which was as good as a trial of a higher number: back to the number that was fine.
            *fine = limit / 2;
            self.strained_us = Some(window.end_us);
            return target(limit, self.slower(window)).clamp(limit / 4, limit / 2);
        } else if is_settled(if is_over { self.raised_us } else { self.lowered_us }, window) {
            *if is_over { &mut self.raised_us } else { &mut self.lowered_us } = Some(window.end_us);
            self.trial = Some(Trial {
                is_higher: is_over,
                before: limit,
                latency,
                samples: 0,
                sum_us: 0,
                low_sum_us: 0,
            });
            return if is_over { limit * 2 } else { limit * 3 / 5 };
        }
        if self.slower(window) > 110 {
            self.strained_us = Some(window.end_us);
        }
        if is_over {
            if let Some(number) = self.fall(limit, latency) {
                return number;
            }
            *fine -=
                fine.saturating_sub(limit) / 1_000 * window.span_us.min(SETTLES_US) / (SETTLES_US / 1_000);
        }
        let whole = if is_over { 50 } else { 250 };
        // After a trial this is half of what was fine: from there to a quarter of it, latency shows whether it follows.
        let target = target(limit, self.slower(window)).max(limit / 4);
        towards(limit, target, window.samples.min(50), whole)
    }

    /// The number from which it has fallen by two fifths, if latency has not followed it: then the service takes longer than it did.
    fn fall(&mut self, limit: u64, latency: Latency) -> Option<u64> {
        let (top, top_latency) = *self.top.get_or_insert((limit, latency));
        if limit * 5 <= top * 3 && !responds(percent(limit, top), top_latency, latency) {
            (self.unloaded, self.top) = (Some(latency), None);
            return Some(top);
        }
        if limit * 5 <= top * 3 || limit > top {
            self.top = Some((limit, latency));
        }
        None
    }

    /// Goes on with a trial; `None` if it ends and latency has followed the number.
    fn go_on(&mut self, mut trial: Trial, limit: u64, latency: Latency, window: &Window) -> Option<u64> {
        trial.samples += window.samples;
        trial.sum_us += window.samples * latency.mean_us;
        trial.low_sum_us += window.samples * latency.low_us;
        if trial.samples < 200.min(2 * limit / ONE) {
            self.trial = Some(trial);
            return Some(limit);
        }
        let samples = trial.samples.max(1);
        let latency = Latency { low_us: trial.low_sum_us / samples, mean_us: trial.sum_us / samples };
        let unloaded_us = self.unloaded.map_or(0, |unloaded| unloaded.mean_us);
        if trial.is_higher {
            // Bounds may have kept it where it was: then the number has to fall to show whether latency follows it.
            if limit <= trial.before || responds(percent(limit, trial.before), trial.latency, latency) {
                self.top = Some((limit, latency));
                return None;
            }
        } else if latency.mean_us * 20 < unloaded_us * 17 {
            // The number was too high to see the unloaded latency until now: another look may show more.
            self.lowered_us = None;
            self.unloaded = Some(latency);
            return None;
        } else if latency.mean_us * 10 < unloaded_us * 13
            || responds(90, trial.latency, latency)
            || limit >= trial.before
        {
            return Some(trial.before);
        }
        self.unloaded = Some(latency);
        Some(limit.max(trial.before))
    }

    /// The mean latency of a window, in percent of the unloaded one.
    fn slower(&self, window: &Window) -> u64 {
        let (Some(unloaded), Some(latency)) = (self.unloaded, window.latency) else { return 100 };
        percent(latency.mean_us, unloaded.mean_us).max(1)
    }
}

/// Whether latency, or that of fast answers, has followed the number by two fifths, which is now this many percent of what it was.
fn responds(number: u64, before: Latency, after: Latency) -> bool {
    let follows = |before: u64, after: u64| {
        let part = percent(after, before);
        if number > 100 { part >= 100 + (number - 100) * 2 / 5 } else { part <= 100 - (100 - number) * 2 / 5 }
    };
    follows(before.mean_us, after.mean_us) || follows(before.low_us, after.low_us)
}

/// The number at which latency would be as tolerated, plus the headroom.
fn target(limit: u64, slower: u64) -> u64 {
    limit * (100 * TOLERATED / slower).clamp(10, 130) / 100 + (limit * ONE).isqrt()
}

/// Whether this was long ago: ten seconds, or three answers.
fn is_settled(at_us: Option<u64>, window: &Window) -> bool {
    let settles_us = SETTLES_US.max(3 * window.latency.map_or(0, |latency| latency.mean_us));
    at_us.is_none_or(|us| window.end_us.saturating_sub(us) > settles_us)
}

/// The unloaded latency after a window: that of windows without demand, and shorter ones.
fn learn(unloaded: Latency, latency: Latency, window: &Window) -> Latency {
    let share = window.samples.max(window.span_us.min(SETTLES_US) * SAMPLES / SETTLES_US).min(SAMPLES / 2);
    let one = |old: u64, new: u64| {
        if window.is_full && new > old { old } else { towards(old, new, share, SAMPLES) }
    };
    Latency { low_us: one(unloaded.low_us, latency.low_us), mean_us: one(unloaded.mean_us, latency.mean_us) }
}

/// `part` in percent of `whole`, up to a hundredfold.
fn percent(part: u64, whole: u64) -> u64 {
    let parts = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(parts).unwrap_or(u64::MAX).min(10_000)
}

/// The value after `share` of `whole` of the way to another.
fn towards(value: u64, other: u64, share: u64, whole: u64) -> u64 {
    let [old, new] =
        [(value, whole - share), (other, share)].map(|(us, part)| u128::from(us) * u128::from(part));
    u64::try_from((old + new) / u128::from(whole)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::*;
    use crate::adaptive::{Estimate, LimitAlgorithm, LimitBounds, Outcome, Sample};

    /// A service with 40 workers, each busy with a request for 20 ms, and clients who take each place that the number gives.
    struct Service {
        estimate: Estimate,
        takes_us: u64,
        /// The requests that clients want to have under way.
        wanted: u64,
        now_us: u64,
        /// The time at which each worker is free.
        free_us: VecDeque<u64>,
        /// The beginning and the end of each request under way.
        requests: VecDeque<(u64, u64)>,
    }

    impl Service {
        fn new(first: u64, at_most: u64, wanted: u64) -> Self {
            let bounds = LimitBounds { first, at_most, ..LimitBounds::default() };
            Self {
                estimate: Estimate::new(LimitAlgorithm::Gradient, bounds),
                takes_us: 20_000,
                wanted,
                now_us: 0,
                free_us: [0; 40].into(),
                requests: VecDeque::new(),
            }
        }

        /// The numbers of the next seconds, one for each answer.
        fn run(&mut self, seconds: u64) -> Vec<u64> {
            let until_us = self.now_us + seconds * 1_000_000;
            let mut limits = Vec::new();
            while self.now_us < until_us {
                while self.may_begin() {
                    let free_us = self.free_us.pop_front().expect("there are workers");
                    let end_us = free_us.max(self.now_us) + self.takes_us;
                    self.free_us.push_back(end_us);
                    self.requests.push_back((self.now_us, end_us));
                }
                let in_flight = self.requests.len() as u64;
                let (begin_us, end_us) = self.requests.pop_front().expect("one may always begin");
                self.now_us = end_us;
                let latency = Duration::from_micros(end_us - begin_us);
                let sample = Sample { latency, in_flight, outcome: Outcome::Good };
                self.estimate.add(Duration::from_micros(end_us), sample);
                limits.push(self.estimate.limit());
            }
            limits
        }

        fn may_begin(&mut self) -> bool {
            let in_flight = self.requests.len() as u64;
            in_flight < self.wanted
                && (in_flight < self.estimate.limit()
                    || self.estimate.demand(Duration::from_micros(self.now_us)))
        }
    }

    #[test]
    fn a_busy_service_has_a_fifth_and_the_headroom_beyond_its_workers_wherever_it_began() {
        for (first, at_most) in
            [(1, 1_000), (20, 1_000), (40, 1_000), (200, 1_000), (1_000, 1_000), (100, 100)]
        {
            let mut service = Service::new(first, at_most, 2_000);
            service.run(12);
            let settled = service.run(20);
            let near = settled.iter().filter(|limit| (48..=64).contains(*limit)).count();
            // Three fifths show the unloaded latency for a moment every ten seconds.
            assert!(near * 10 > settled.len() * 9, "from {first} of {at_most}: {settled:?}");
        }
    }

    #[test]
    fn overload_at_the_largest_number_does_not_teach_its_latency() {
        let mut service = Service::new(100, 100, 10);
        service.run(5);
        service.wanted = 2_000;
        service.run(1);
        let limits = service.run(5);
        assert!(limits.iter().all(|limit| (48..=64).contains(limit)), "{limits:?}");
    }

    #[test]
    fn a_service_that_gets_slower_with_the_same_room_keeps_its_number() {
        for slower in [2, 3, 4] {
            let mut service = Service::new(52, 1_000, 2_000);
            service.run(30);
            service.takes_us *= slower;
            let answers = service.run(5).len() as u64;
            assert!(answers * slower > 5 * 2_000 * 17 / 20, "{slower}: {answers} of its answers");
            let limits = service.run(5);
            assert!(limits.iter().all(|limit| (48..=64).contains(limit)), "{slower}: {limits:?}");
        }
    }

    #[derive(Default)]
    struct Loop {
        gradient: Gradient,
        limit: u64,
        fine: u64,
        end_us: u64,
    }

    impl Loop {
        fn from(first: u64) -> Self {
            Self { limit: first * ONE, ..Self::default() }
        }

        fn window(&mut self, latency_us: u64, in_flight: u64, is_full: bool) -> u64 {
            self.end_us += 100_000;
            let latency = Some(Latency { low_us: latency_us, mean_us: latency_us });
            let window = Window {
                end_us: self.end_us,
                span_us: 100_000,
                latency,
                samples: 200,
                answers: 200,
                faults: 0,
                in_flight,
                held_us: latency_us,
                is_full,
                is_raised: false,
            };
            self.limit = self.gradient.next(self.limit, &mut self.fine, &window);
            self.limit / ONE
        }
    }

    #[test]
    fn a_number_without_demand_never_falls_and_has_room_for_twice_what_came() {
        let mut limits = Loop::from(20);
        assert_eq!(limits.window(20_000, 10, false), 20);
        assert_eq!(limits.window(20_000, 15, false), 30);
        assert_eq!(limits.window(2_000_000, 29, false), 30, "too slow to grow");
        assert_eq!(limits.window(20_000, 1, false), 30);
    }

    #[test]
    fn a_tenth_goes_with_each_window_of_faults() {
        let mut limits = Loop::from(100);
        let window = Window {
            end_us: 0,
            span_us: 100_000,
            latency: None,
            samples: 0,
            answers: 100,
            faults: 6,
            in_flight: 9,
            held_us: 0,
            is_full: false,
            is_raised: false,
        };
        assert_eq!(limits.gradient.next(100 * ONE, &mut limits.fine, &window), 90 * ONE);
        let window = Window { faults: 5, ..window };
        assert_eq!(limits.gradient.next(90 * ONE, &mut limits.fine, &window), 90 * ONE, "one in twenty");
    }
}
