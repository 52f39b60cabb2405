//! The usual numbers of a policy: [`UsualRange`].

/// The hours of a day.
const HOURS: usize = 24;
/// Minutes with requests that have to be learned before any number is unusual.
const KNOWN: f64 = 10.0;
/// Time constant of the recent level, in minutes: its half-life is about eight hours.
const LATELY: f64 = 700.0;
/// Time constant of the level of one hour of the day, in minutes of that hour: its half-life is about three days.
const HOURLY: f64 = 260.0;
/// A number is unusual from this multiple of the usual level on, if it is also enough deviations above it.
const FACTOR: f64 = 3.0;
const DEVIATIONS: f64 = 6.0;
/// Numbers more deviations away than this are learned as if they were this far away, so that an attack does not soon become usual.
const TAUGHT: f64 = 3.0;
/// The least deviation, so that a number that never varied may vary.
const LEAST: f64 = 0.1;
/// The weight of a minute with unusual numbers.
const SLOWLY: f64 = 0.1;

/// The usual level, recently and at each hour of the day: exponentially weighted means of the logarithms of a number, and of the deviations
/// from them. Logarithms compare ratios, so that a factor counts the same at night and by day.
pub(super) struct UsualRange {
    lately: UsualLevel,
    hours: [UsualLevel; HOURS],
    /// The current hour, since the Unix epoch, and its level on former days.
    hour: u64,
    former: UsualLevel,
}

#[derive(Clone, Copy, Default)]
struct UsualLevel {
    mean: f64,
    deviation: f64,
    minutes: f64,
}

impl UsualRange {
    pub(super) fn new() -> Self {
        Self {
            lately: UsualLevel::default(),
            hours: [UsualLevel::default(); HOURS],
            hour: 0,
            former: UsualLevel::default(),
        }
    }

    /// Learns from a minute with requests.
    pub(super) fn learn(&mut self, number: f64, minute: u64, is_unusual: bool) {
        self.turn(minute);
        let part = if is_unusual { SLOWLY } else { 1.0 };
        self.lately.learn(number, LATELY, part);
        self.hours[of_day(minute / 60)].learn(number, HOURLY, part);
    }

    /// Whether a number is unusual at this minute.
    pub(super) fn is_exceeded_by(&mut self, number: f64, minute: u64) -> bool {
        self.turn(minute);
        self.lately.minutes >= KNOWN && number.ln_1p() > self.level().most()
    }

    /// Whether twice this number would still be usual.
    pub(super) fn is_far_above(&self, number: f64) -> bool {
        (number * 2.0).ln_1p() < self.level().most()
    }

    /// The lowest and the highest usual number.
    pub(super) fn range(&self) -> (f64, f64) {
        let UsualLevel { mean, deviation, .. } = *self.level();
        let spread = 2.0 * deviation.max(LEAST);
        ((mean - spread).exp_m1().max(0.0), (mean + spread).exp_m1())
    }

    /// The level of this hour on former days if enough minutes of it are known, otherwise the level of the last hours.
    fn level(&self) -> &UsualLevel {
        if self.former.minutes >= KNOWN { &self.former } else { &self.lately }
    }

    fn turn(&mut self, minute: u64) {
        let hour = minute / 60;
        if hour != self.hour {
            (self.hour, self.former) = (hour, self.hours[of_day(hour)]);
        }
    }
}

impl UsualLevel {
    fn learn(&mut self, number: f64, memory: f64, part: f64) {
        let (number, deviation) = (number.ln_1p(), self.deviation.max(LEAST));
        let mut away = number - self.mean;
        if self.minutes >= KNOWN {
            away = away.clamp(-TAUGHT * deviation, TAUGHT * deviation);
        }
        let weight = part / (self.minutes + 1.0).min(memory);
        self.mean += weight * away;
        // The mean absolute deviation of a normal distribution is about four fifths of its standard deviation.
        self.deviation += weight * (1.25 * away.abs() - self.deviation);
        self.minutes += part;
    }

    fn most(&self) -> f64 {
        self.mean + FACTOR.ln().max(DEVIATIONS * self.deviation)
    }
}

/// The hour of the day, which is below 24.
#[expect(clippy::cast_possible_truncation, reason = "it is below 24")]
fn of_day(hour: u64) -> usize {
    (hour % HOURS as u64) as usize
}
