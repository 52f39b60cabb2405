//! Latency against the latency of a service without too much to do; see [`LimitAlgorithm::Gradient`](super::LimitAlgorithm::Gradient).

use super::window::{Latency, ONE, Window};

/// The number settles where latency is this many percent of the unloaded latency, plus the headroom.
const TOLERATED: u64 = 120;
/// A window without demand moves the unloaded latency by the part that its samples are of this many, or its time of [`SETTLES_US`].
const SAMPLES: u64 = 500;
/// The time after the last sign of overload from which the number doubles again with demand.
const SETTLES_US: u64 = 10_000_000;

/// The answers that the latency of the last windows comes from.
const RECENT: u64 = 200;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gradient {
    /// The latency of windows in which no request lacked a permit.
    unloaded: Option<Latency>,
    /// The time of the first of them.
    began_us: u64,
    /// The latency of the last windows.
    recent: Option<Latency>,
    /// The time of the last sign of overload.
    strained_us: Option<u64>,
    /// The last time at which latency has jumped, although the number had not grown: the service may take longer than it did.
    jumped_us: Option<u64>,
    /// The time of the last look at another number.
    looked_us: Option<u64>,
    trial: Option<Trial>,
    /// The last number at which requests lacked permits.
    last: u64,
    /// The most requests that were under way at once in the last window.
    in_flight: u64,
}

/// Another number for a short time while requests lack permits. If latency follows the number, the service has too much to do; if not, it
/// takes longer than it did.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The number and the latency before it.
    before: u64,
    latency: Latency,
    /// The number after it, if latency has followed.
    after: u64,
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
        let Some(latency) = window.latency else { return false };
        let is_fine = self.trial.is_none() && !self.is_over(limit, latency) && self.slower(latency) <= 150;
        is_fine && (2 * limit <= fine || is_past(self.strained_us, window.end_us, latency))
    }

    /// Whether slow answers have come, too: ten times as much time is over as answers take.
    fn is_known(&self, now_us: u64, latency: Latency) -> bool {
        now_us.saturating_sub(self.began_us) > SETTLES_US.max(10 * latency.mean_us)
    }

    /// Whether answers take half longer than without load, the fast ones too, for the first time in ten seconds.
    pub(super) fn is_slow(&self, now_us: u64, latency: Latency) -> bool {
        self.is_known(now_us, latency)
            && is_past(self.strained_us, now_us, latency)
            && self.unloaded.is_some_and(|unloaded| exceeds(latency, unloaded, 150))
    }

    /// Whether latency says that the number is too high.
    fn is_over(&self, limit: u64, latency: Latency) -> bool {
        let Some(unloaded) = self.unloaded else { return false };
        // Only as far as the fast answers are slower, too: a mixture of fast and slow ones may have changed.
        let low = percent(latency.low_us, unloaded.low_us).max(1);
        target(limit, low.min(self.slower(latency))) < limit * 17 / 20
    }

    /// The number after a window; `fine` is the highest number that was fine, which falls while the service is too slow.
    pub(super) fn next(&mut self, limit: u64, fine: &mut u64, window: &Window) -> u64 {
        if window.is_faulty() {
            (self.strained_us, self.trial) = (Some(window.end_us), None);
            return limit * 9 / 10;
        }
        let Some(latency) = window.latency else { return limit };
        if self.unloaded.is_none() {
            // The first answers are those of the fastest requests: the others are still under way.
            let mean_us = latency.mean_us.max(window.held_us);
            self.unloaded = (window.samples >= 10).then_some(Latency { mean_us, ..latency });
            self.began_us = window.end_us;
            return limit;
        }
        let recent = self.remember(limit, latency, window);
        let is_over = self.is_over(limit, latency);
        if self.trial.is_none() && !window.is_raised {
            self.learn(if window.is_full { recent } else { latency }, window);
        }
        self.in_flight = window.in_flight;
        if !is_over {
            *fine = limit.max(*fine);
        }
        if window.is_full {
            return self.follow(limit, fine, latency, recent, window);
        }
        self.trial = None;
        // Room for as many again: for a burst, and for a service that takes twice as long after a deploy.
        if is_over || window.is_raised { limit } else { limit.max(2 * window.in_flight * ONE) }
    }

    /// The latency of the last windows, this one included; a jump of it is noted.
    fn remember(&mut self, limit: u64, latency: Latency, window: &Window) -> Latency {
        let before = self.recent.unwrap_or(latency);
        let has_room = window.is_full && limit * 4 <= self.last * 5;
        if has_room && window.samples >= 50 && exceeds(latency, before, 130) {
            self.jumped_us = Some(window.end_us);
        }
        *self.recent.insert(before.towards(latency, window.samples.min(RECENT / 2), RECENT))
    }

    /// Moves the unloaded latency towards that of a window: up only without demand and overload, and not while requests accumulate.
    fn learn(&mut self, latency: Latency, window: &Window) {
        let Some(unloaded) = self.unloaded else { return };
        let share =
            window.samples.max(window.span_us.min(SETTLES_US) * SAMPLES / SETTLES_US).min(SAMPLES / 2);
        let accumulates =
            self.is_known(window.end_us, latency) && window.in_flight * 10 > self.in_flight * 11 + 10;
        let may_rise = !window.is_full && !accumulates && is_past(self.strained_us, window.end_us, latency);
        let latency = if may_rise { latency } else { latency.min(unloaded) };
        self.unloaded = Some(unloaded.towards(latency, share, SAMPLES));
    }

    /// The number after a window in which requests lacked permits.
    fn follow(
        &mut self,
        limit: u64,
        fine: &mut u64,
        latency: Latency,
        recent: Latency,
        window: &Window,
    ) -> u64 {
        let is_over = self.is_over(limit, latency);
        let last = std::mem::replace(&mut self.last, limit);
        if let Some(trial) = self.trial.take() {
            if let Some(number) = self.go_on(trial, limit, *fine, latency, window) {
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
            let number = target(limit, self.slower(latency)).clamp(limit / 4, limit / 2);
            // As long as slow answers are unknown, latency may be no longer than ever.
            return if self.is_known(window.end_us, latency) {
                number
            } else {
                self.begin(limit, number, number, latency)
            };
        } else if is_over && is_past(self.strained_us, window.end_us, latency) {
            self.strained_us = Some(window.end_us);
            return self.begin(limit, limit * 2, limit, latency);
        } else if let Some(number) = self.look(limit, last, *fine, recent, window) {
            self.looked_us = Some(window.end_us);
            // Recent answers may be from before the number has fallen.
            return self.begin(
                limit,
                number,
                limit,
                if number > limit { recent.min(latency) } else { recent },
            );
        }
        if self.slower(latency) > 110 {
            self.strained_us = Some(window.end_us);
        }
        if is_over {
            *fine -=
                fine.saturating_sub(limit) / 1_000 * window.span_us.min(SETTLES_US) / (SETTLES_US / 1_000);
        }
        let target = target(limit, self.slower(latency)).max(limit / 4);
        towards(limit, target, window.samples.min(50), if is_over { 50 } else { 250 })
    }

    /// Another number to look at, if it is time. If latency stays too long although the number has fallen, it is a higher one, which refuses
    /// nothing, each five quarters of a second; otherwise a lower one, to see the unloaded latency, each ten seconds. For slow answers the
    /// time doubles until it is five of them.
    ///
    /// It is time by the clock, so that instances before one service look together: none of them alone changes its latency.
    fn look(&self, limit: u64, last: u64, fine: u64, recent: Latency, window: &Window) -> Option<u64> {
        let now = window.latency?;
        let has_fallen = self.has_jumped(window.end_us, recent) && limit * 3 <= fine * 2;
        let is_strained =
            self.is_over(limit, recent) && self.slower(now) > 150 || has_fallen && self.slower(recent) > 130;
        let mut period_us = if is_strained { SETTLES_US / 8 } else { SETTLES_US };
        while period_us < 5 * recent.mean_us {
            period_us *= 2;
        }
        let is_due = self.looked_us.is_none_or(|us| us / period_us != window.end_us / period_us);
        // While the number or latency moves, another number would show nothing.
        let is_steady = limit.abs_diff(last) * 10 <= limit
            && (!is_strained || (80..=120).contains(&percent(now.mean_us, recent.mean_us)));
        (is_due && is_steady).then_some(if is_strained { limit * 5 / 3 } else { limit * 3 / 5 })
    }

    /// Begins a trial of another number.
    fn begin(&mut self, before: u64, number: u64, after: u64, latency: Latency) -> u64 {
        self.trial = Some(Trial { before, latency, after, samples: 0, sum_us: 0, low_sum_us: 0 });
        number
    }

    /// Goes on with a trial; `None` if the number was too high, and falls from where it is.
    fn go_on(
        &mut self,
        mut trial: Trial,
        limit: u64,
        fine: u64,
        latency: Latency,
        window: &Window,
    ) -> Option<u64> {
        trial.samples += window.samples;
        trial.sum_us += window.samples * latency.mean_us;
        trial.low_sum_us += window.samples * latency.low_us;
        if trial.samples < (2 * limit / ONE).clamp(50, 200) {
            self.trial = Some(trial);
            return Some(limit);
        }
        let latency =
            Latency { low_us: trial.low_sum_us / trial.samples, mean_us: trial.sum_us / trial.samples };
        let part = percent(latency.mean_us, trial.latency.mean_us);
        let follows = follows(percent(limit, trial.before), trial.latency, latency);
        if limit > trial.before && follows {
            return None;
        }
        if limit < trial.before && self.slower(latency) < 85 {
            // The number was too high to see the unloaded latency until now: another look may show more.
            (self.looked_us, self.unloaded) = (None, Some(latency));
            return None;
        }
        if follows {
            return Some(trial.after);
        }
        // Latency that moves against the number has another reason, which is not over.
        if limit == trial.before || limit < trial.before && part > 115 || part < 80 {
            return Some(trial.before);
        }
        self.unloaded = Some(latency);
        // If it had fallen because latency has jumped, it was for nothing.
        Some(limit.max(if self.has_jumped(window.end_us, latency) { fine } else { trial.before }))
    }

    /// Whether latency has jumped in the last ten seconds.
    fn has_jumped(&self, now_us: u64, latency: Latency) -> bool {
        !is_past(self.jumped_us, now_us, latency)
    }

    /// A mean latency in percent of the unloaded one.
    fn slower(&self, latency: Latency) -> u64 {
        self.unloaded.map_or(100, |unloaded| percent(latency.mean_us, unloaded.mean_us).max(1))
    }
}

impl Latency {
    fn min(self, other: Self) -> Self {
        Self { low_us: self.low_us.min(other.low_us), mean_us: self.mean_us.min(other.mean_us) }
    }

    /// The latency after `share` of `whole` of the way to another.
    fn towards(self, other: Self, share: u64, whole: u64) -> Self {
        Self {
            low_us: towards(self.low_us, other.low_us, share, whole),
            mean_us: towards(self.mean_us, other.mean_us, share, whole),
        }
    }
}

/// Whether the mean and the fast answers of one latency are longer than this many percent of another.
fn exceeds(latency: Latency, other: Latency, least: u64) -> bool {
    percent(latency.mean_us, other.mean_us).min(percent(latency.low_us, other.low_us)) > least
}

/// Whether latency, or that of fast answers, has followed the number, which is now this many percent of what it was: by a fifth of the
/// way down, or two fifths of the way up.
fn follows(number: u64, before: Latency, after: Latency) -> bool {
    let follows = |before: u64, after: u64| {
        let part = percent(after, before);
        if number > 100 { part >= 100 + (number - 100) * 2 / 5 } else { part <= 100 - (100 - number) / 5 }
    };
    follows(before.mean_us, after.mean_us) || follows(before.low_us, after.low_us)
}

/// The number at which latency would be as tolerated, plus the headroom.
fn target(limit: u64, slower: u64) -> u64 {
    limit * (100 * TOLERATED / slower).clamp(10, 130) / 100 + (limit * ONE).isqrt()
}

/// Whether this was long ago: ten seconds, or three answers.
fn is_past(at_us: Option<u64>, now_us: u64, latency: Latency) -> bool {
    at_us.is_none_or(|us| now_us.saturating_sub(us) > SETTLES_US.max(3 * latency.mean_us))
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

    /// Three fifths show the unloaded latency for a moment every ten seconds.
    fn is_settled(limits: &[u64]) -> bool {
        limits.iter().filter(|limit| (48..=64).contains(*limit)).count() * 10 > limits.len() * 9
    }

    #[test]
    fn a_busy_service_has_a_fifth_and_the_headroom_beyond_its_workers_wherever_it_began() {
        for (first, at_most) in
            [(1, 1_000), (20, 1_000), (40, 1_000), (200, 1_000), (1_000, 1_000), (100, 100)]
        {
            let mut service = Service::new(first, at_most, 2_000);
            service.run(12);
            assert!(is_settled(&service.run(20)), "from {first} of {at_most}");
        }
    }

    #[test]
    fn overload_at_the_largest_number_does_not_teach_its_latency() {
        let mut service = Service::new(100, 100, 10);
        service.run(5);
        service.wanted = 2_000;
        service.run(1);
        let limits = service.run(5);
        assert!(is_settled(&limits), "{limits:?}");
    }

    #[test]
    fn a_service_that_gets_slower_with_the_same_room_keeps_its_number() {
        for slower in [2, 3, 4] {
            let mut service = Service::new(52, 1_000, 2_000);
            service.run(30);
            service.takes_us *= slower;
            let answers = service.run(5).len() as u64;
            assert!(answers * slower > 5 * 2_000 * 17 / 20, "{slower}: {answers} of its answers");
            assert!(is_settled(&service.run(5)), "{slower}");
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
