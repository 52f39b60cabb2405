//! Detects unusual requests of a policy: [`AnomalyDetector`].
//!
//! An attack that is spread over many keys exceeds no limit of one key. It shows in numbers of the whole policy: new keys, requests,
//! refusals, and the shares of the busiest keys and the busiest network. Every ten seconds they are compared with their
//! [usual range](UsualRange). A detector takes 28 KiB for each policy, whatever keys come.

mod sample;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use sluicegate_core::key::KeyRef;
use sluicegate_core::store::{Alarm, AlarmCause, KnownKeys};
use sluicegate_core::support::lock;

use crate::unusual::sample::{KeyFigures, KeyHistory, KeySample, MINUTE, NEW};

const SLOT_US: u64 = 10_000_000;
/// The number of requests per second whose keys are recorded, at 0.1 us each.
const LOOKS: u32 = 20_000;
/// The number of causes.
const CAUSES: usize = AlarmCause::ALL.len();
/// Numbers of one minute below these are never unusual.
const LEAST_BY_CAUSE: [f64; CAUSES] = [300.0, 60.0, 60.0, 300.0, 300.0];
/// New keys cause no alarm if they make less than this part of the requests.
const LEAST_BY_NEW: f64 = 0.25;
/// A network that makes less than this part is not named.
const LEAST_BY_NETWORK: f64 = 0.05;

/// The usual numbers of a policy, and the alarms about others.
pub(super) struct AnomalyDetector {
    /// The number of keys that may still be recorded in this second.
    looks: AtomicU32,
    state: Mutex<UnusualState>,
}

/// The requests of a policy, and how many of them were refused, since its name was first opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountsSoFar {
    pub(super) requests: u64,
    pub(super) refusals: u64,
}

struct UnusualState {
    /// The first slot.
    begun: u32,
    /// The current slot.
    slot: u32,
    /// The counts at the beginnings of the last six slots, the oldest first.
    counted: VecDeque<CountsSoFar>,
    sample: KeySample,
    /// For a policy that is tightened for new keys only.
    history: Option<KeyHistory>,
    usual: [UsualRange; CAUSES],
    watches: [AlarmWatch; CAUSES],
    new_keys: f64,
}

impl AnomalyDetector {
    pub(super) fn new(now_us: u64) -> Self {
        let state = UnusualState {
            begun: slot_at(now_us),
            slot: slot_at(now_us),
            counted: std::iter::repeat_n(CountsSoFar::default(), MINUTE as usize).collect(),
            sample: KeySample::new(),
            history: None,
            usual: std::array::from_fn(|_| UsualRange::new()),
            watches: std::array::from_fn(|_| AlarmWatch::default()),
            new_keys: 0.0,
        };
        Self { looks: AtomicU32::new(LOOKS), state: Mutex::new(state) }
    }

    /// Sees the key of a request, in this second of the clock.
    #[inline]
    pub(super) fn see(&self, key: KeyRef<'_>, now_us: u64) {
        // Relaxed, and not in one step: threads that record at the same time may count as one.
        let left = self.looks.load(Ordering::Relaxed);
        if left > 0 {
            self.looks.store(left - 1, Ordering::Relaxed);
            self.look(key, now_us);
        }
    }

    #[inline(never)]
    fn look(&self, key: KeyRef<'_>, now_us: u64) {
        // If two threads record at the same time, one of them is enough.
        if let Ok(mut state) = self.state.try_lock() {
            let digest = state.sample.see(key, slot_at(now_us));
            if let Some(history) = &mut state.history {
                history.see(digest);
            }
        }
    }

    /// A second has begun. Returns the alarms that begin and end.
    pub(super) fn turn(
        &self,
        policy: &str,
        now_us: u64,
        counted: impl FnOnce() -> CountsSoFar,
    ) -> Vec<Alarm> {
        self.looks.store(LOOKS, Ordering::Relaxed);
        let slot = slot_at(now_us);
        match self.state.try_lock() {
            Ok(mut state) if slot > state.slot => state.turn(policy, slot, counted()),
            // The thread with the lock does the same.
            _ => Vec::new(),
        }
    }

    /// From now on keys are remembered.
    pub(super) fn remember_keys(&self, now_us: u64) {
        lock(&self.state).history.get_or_insert_with(|| KeyHistory::new(slot_at(now_us)));
    }

    /// Tests whether a key came before requests became unusual; `None` if all keys count as known.
    pub(super) fn known_keys(&self, now_us: u64) -> Option<KnownKeys> {
        let state = lock(&self.state);
        state.history.as_ref()?.known(slot_at(now_us), state.sample.digests())
    }

    /// The current alarms.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        lock(&self.state).watches.iter().filter_map(AlarmWatch::alarm).cloned().collect()
    }

    /// Keys that came for the first time in the last whole minute.
    pub(super) fn new_keys(&self) -> f64 {
        lock(&self.state).new_keys
    }
}

impl UnusualState {
    fn turn(&mut self, policy: &str, slot: u32, counted: CountsSoFar) -> Vec<Alarm> {
        // Without requests the counts stay, so that later requests belong to the slot in which they came.
        let mut before = CountsSoFar::default();
        for _ in 0..(slot - self.slot).min(MINUTE + 1) {
            before = self.counted.pop_front().unwrap_or_default();
            self.counted.push_back(counted);
        }
        let (requests, refusals) = (counted.requests - before.requests, counted.refusals - before.refusals);
        let figures = self.sample.figures(slot - 1);
        self.new_keys = figures.new;
        let numbers = numbers_by_cause(requests, refusals, &figures);
        let minute = u64::from((slot - 1) / MINUTE);
        let mut alarms = Vec::new();
        for (place, cause) in AlarmCause::ALL.into_iter().enumerate() {
            let (range, number) = (&mut self.usual[place], numbers[place]);
            let may_alarm = cause != AlarmCause::NewKeys || figures.by_new >= LEAST_BY_NEW;
            let verdict =
                if number >= LEAST_BY_CAUSE[place] && may_alarm && range.is_exceeded_by(number, minute) {
                    SlotVerdict::Unusual
                } else if number < LEAST_BY_CAUSE[place] || range.is_far_above(number) {
                    SlotVerdict::AsUsual
                } else {
                    SlotVerdict::Between
                };
            let alarm =
                || alarm_of(policy, cause, u64::from(slot) * SLOT_US, &numbers, range.range(), &figures);
            alarms.extend(self.watches[place].turn(slot, verdict, alarm));
        }
        if requests > 0 && slot / MINUTE != self.slot / MINUTE {
            // Numbers during an attack are as unusual as the attack.
            let is_unusual = self.watches.iter().any(|watch| watch.alarm().is_some());
            if let Some(history) = &mut self.history {
                history.turn(slot, is_unusual);
            }
            for (place, cause) in AlarmCause::ALL.into_iter().enumerate() {
                // At first every key is new.
                if cause != AlarmCause::NewKeys || slot - self.begun > NEW {
                    self.usual[place].learn(numbers[place], minute, is_unusual);
                }
            }
        }
        self.slot = slot;
        alarms
    }
}

/// The numbers of a minute, by the places of their causes.
#[expect(clippy::cast_precision_loss, reason = "numbers to compare")]
fn numbers_by_cause(requests: u64, refusals: u64, figures: &KeyFigures) -> [f64; CAUSES] {
    let all = requests as f64;
    let by_network = figures.networks.first().map_or(0.0, |(_, part)| *part);
    [all, refusals as f64, figures.new, figures.by_busiest * all, by_network * all]
}

/// An alarm with these numbers.
fn alarm_of(
    policy: &str,
    cause: AlarmCause,
    since_us: u64,
    numbers: &[f64; CAUSES],
    usual: (f64, f64),
    figures: &KeyFigures,
) -> Alarm {
    let (requests, number) = (numbers[0], numbers[cause as usize]);
    let mut alarm = Alarm::of(policy, cause);
    alarm.since_us = since_us;
    alarm.a_minute = whole(number);
    alarm.usual = (whole(usual.0), whole(usual.1));
    alarm.share = match cause {
        AlarmCause::NewKeys => {
            alarm.error = whole(figures.error);
            figures.by_new
        }
        _ => number / requests.max(1.0),
    };
    let networks = match cause {
        AlarmCause::NewKeys => &figures.networks_of_new,
        _ => &figures.networks,
    };
    let named = networks.iter().filter(|(_, part)| *part >= LEAST_BY_NETWORK);
    alarm.networks = named.cloned().collect();
    alarm
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number to look at")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// The number of a slot of ten seconds.
fn slot_at(now_us: u64) -> u32 {
    u32::try_from(now_us / SLOT_US).unwrap_or(u32::MAX)
}

// The usual numbers of a policy: [`UsualRange`].

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
const LEAST_DEVIATION: f64 = 0.1;
/// The weight of a minute with unusual numbers.
const SLOWLY: f64 = 0.1;

/// The usual level, recently and at each hour of the day: exponentially weighted means of the logarithms of a number, and of the deviations
/// from them. Logarithms compare ratios, so that a factor counts the same at night and by day.
struct UsualRange {
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
    fn new() -> Self {
        Self {
            lately: UsualLevel::default(),
            hours: [UsualLevel::default(); HOURS],
            hour: 0,
            former: UsualLevel::default(),
        }
    }

    /// Learns from a minute with requests.
    fn learn(&mut self, number: f64, minute: u64, is_unusual: bool) {
        self.turn(minute);
        let part = if is_unusual { SLOWLY } else { 1.0 };
        self.lately.learn(number, LATELY, part);
        self.hours[of_day(minute / 60)].learn(number, HOURLY, part);
    }

    /// Whether a number is unusual at this minute.
    fn is_exceeded_by(&mut self, number: f64, minute: u64) -> bool {
        self.turn(minute);
        self.lately.minutes >= KNOWN && number.ln_1p() > self.level().most()
    }

    /// Whether twice this number would still be usual.
    fn is_far_above(&self, number: f64) -> bool {
        (number * 2.0).ln_1p() < self.level().most()
    }

    /// The lowest and the highest usual number.
    fn range(&self) -> (f64, f64) {
        let UsualLevel { mean, deviation, .. } = *self.level();
        let spread = 2.0 * deviation.max(LEAST_DEVIATION);
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
        let (number, deviation) = (number.ln_1p(), self.deviation.max(LEAST_DEVIATION));
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

// When an alarm begins and ends: [`AlarmWatch`].

/// The slots in a row that are unusual before an alarm begins.
const BEGINS: u32 = 2;
/// The slots in a row that are usual before it ends: five minutes.
const ENDS: u32 = 5 * MINUTE;
/// The slots between two alarms of one cause: ten minutes.
const APART: u32 = 10 * MINUTE;

/// One cause of alarms.
#[derive(Default)]
struct AlarmWatch {
    /// The alarm, while it lasts.
    alarm: Option<Alarm>,
    /// The slot in which it was last reported.
    told: Option<u32>,
    /// Whether an alarm was reported, so that its end has to be reported too.
    is_open: bool,
    /// Slots in a row that contradict the current state.
    slots: u32,
}

/// The verdict on a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotVerdict {
    Unusual,
    /// Neither: an alarm goes on, and none begins.
    Between,
    AsUsual,
}

impl AlarmWatch {
    /// The current alarm.
    fn alarm(&self) -> Option<&Alarm> {
        self.alarm.as_ref()
    }

    /// Ends a slot, and returns the alarm to report, if any.
    fn turn(&mut self, slot: u32, found: SlotVerdict, alarm: impl FnOnce() -> Alarm) -> Option<Alarm> {
        let lasts = self.alarm.is_some();
        let (against, enough) =
            if lasts { (SlotVerdict::AsUsual, ENDS) } else { (SlotVerdict::Unusual, BEGINS) };
        self.slots = if found == against { self.slots + 1 } else { 0 };
        if let Some(lasting) = self.alarm.as_mut().filter(|_| found == SlotVerdict::Unusual) {
            let since_us = lasting.since_us;
            *lasting = alarm();
            lasting.since_us = since_us;
        } else if self.slots >= enough {
            self.slots = 0;
            if lasts {
                self.alarm = None;
                let is_told = std::mem::take(&mut self.is_open);
                return is_told.then(|| {
                    let mut over = alarm();
                    over.is_over = true;
                    over
                });
            }
            self.alarm = Some(alarm());
        }
        let is_due = self.told.is_none_or(|told| slot.saturating_sub(told) >= APART);
        if self.alarm.is_none() || self.is_open || !is_due {
            return None;
        }
        (self.told, self.is_open) = (Some(slot), true);
        self.alarm.clone()
    }
}

#[cfg(test)]
mod tests;
