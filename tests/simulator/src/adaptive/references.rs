//! Limits of others by their public descriptions, and the former default, to compare with: [`Reference`].

use std::fmt;

/// An algorithm that is only a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `Gradient2Limit` of Netflix' concurrency-limits with its defaults: latency against its own average over 600 windows.
    Gradient2,
    /// `VegasLimit` of Netflix' concurrency-limits: an estimate of the requests that wait, by the shortest latency of 30 windows.
    Vegas,
    /// The gradient controller of Envoy's adaptive concurrency filter with its defaults: each minute it lets three requests in at a time,
    /// until fifty are answered, to measure the latency without load.
    Envoy,
    /// The default of this crate until version 0.1: as Envoy's, measured every hundred windows at half of the number.
    Former,
}

/// The state of a reference.
#[derive(Clone, Debug)]
pub(super) struct ReferenceLimit {
    reference: Reference,
    pub(super) limit: f64,
    at_most: f64,
    /// The latency to compare with, in microseconds: an average, the shortest, or the measured one.
    usual_us: f64,
    recent_us: f64,
    windows: u32,
    /// The number before a measurement, and the latencies of its windows.
    measuring: Option<(f64, Vec<f64>)>,
    answers: u32,
}

/// The answers of a tenth of a second, or of as long as they took on average.
pub(super) struct ReferenceWindow {
    pub(super) median_us: f64,
    pub(super) in_flight: f64,
    pub(super) samples: u32,
    pub(super) is_faulty: bool,
}

impl Reference {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gradient2, Self::Vegas, Self::Envoy, Self::Former];
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gradient2 => "gradient2",
            Self::Vegas => "vegas",
            Self::Envoy => "envoy",
            Self::Former => "former",
        })
    }
}

impl ReferenceLimit {
    pub(super) fn new(reference: Reference, first: u64, at_most: u64) -> Self {
        let (limit, at_most) = (first as f64, at_most as f64);
        let zero = 0.0;
        let mut new = Self {
            reference,
            limit,
            at_most,
            usual_us: zero,
            recent_us: zero,
            windows: 0,
            measuring: None,
            answers: 0,
        };
        if reference == Reference::Envoy {
            new.measuring = Some((limit, Vec::new()));
            new.limit = 3.0;
        }
        new
    }

    pub(super) fn update(&mut self, window: &ReferenceWindow) {
        self.windows += 1;
        let limit = match self.reference {
            Reference::Gradient2 => self.gradient2(window),
            Reference::Vegas => self.vegas(window),
            Reference::Envoy => self.envoy(window),
            Reference::Former => self.former(window),
        };
        self.limit = limit.clamp(1.0, self.at_most);
    }

    fn is_idle(&self, window: &ReferenceWindow) -> bool {
        window.in_flight * 2.0 < self.limit.floor()
    }

    fn gradient2(&mut self, window: &ReferenceWindow) -> f64 {
        let share = if self.windows <= 10 { 1.0 / f64::from(self.windows) } else { 2.0 / 601.0 };
        self.usual_us += (window.median_us - self.usual_us) * share;
        let usual_us = self.usual_us;
        if usual_us > 2.0 * window.median_us {
            self.usual_us *= 0.95;
        }
        if self.is_idle(window) {
            return self.limit;
        }
        let gradient = (1.5 * usual_us / window.median_us).clamp(0.5, 1.0);
        self.limit * 0.8 + (self.limit * gradient + 4.0) * 0.2
    }

    fn vegas(&mut self, window: &ReferenceWindow) -> f64 {
        if self.usual_us == 0.0 || window.median_us < self.usual_us || self.windows >= 30 {
            (self.usual_us, self.windows) =
                (window.median_us, if self.windows >= 30 { 0 } else { self.windows });
            return self.limit;
        }
        let step = self.limit.log10().floor().max(1.0);
        if window.is_faulty {
            return self.limit - step;
        }
        if self.is_idle(window) {
            return self.limit;
        }
        match (self.limit * (1.0 - self.usual_us / window.median_us)).ceil() {
            waiting if waiting <= step => self.limit + 6.0 * step,
            waiting if waiting < 3.0 * step => self.limit + step,
            waiting if waiting > 6.0 * step => self.limit - step,
            _ => self.limit,
        }
    }

    fn envoy(&mut self, window: &ReferenceWindow) -> f64 {
        if let Some((before, mut medians)) = self.measuring.take() {
            medians.push(window.median_us);
            self.answers += window.samples;
            if self.answers < 50 {
                self.measuring = Some((before, medians));
                return self.limit;
            }
            self.usual_us = medians.iter().sum::<f64>() / medians.len() as f64;
            (self.answers, self.windows) = (0, 0);
            return before;
        }
        let gradient = (self.usual_us * 1.25 / window.median_us).clamp(0.5, 2.0);
        let limit = self.limit * gradient;
        let limit = (limit + limit.sqrt()).min(self.at_most);
        // A minute of windows of a tenth of a second, or more where answers take longer.
        if self.windows >= 600 {
            self.measuring = Some((limit, Vec::new()));
            return 3.0;
        }
        limit
    }

    fn former(&mut self, window: &ReferenceWindow) -> f64 {
        let weight = f64::from(window.samples.min(50));
        let measuring = self.measuring.take();
        if window.is_faulty {
            return measuring.map_or(self.limit, |(before, _)| before) * 0.9;
        }
        if let Some((before, mut medians)) = measuring {
            // The first window has answers from before the measurement.
            medians.push(window.median_us * f64::from(window.samples));
            self.answers += if medians.len() > 1 { window.samples } else { 0 };
            if self.answers < 100 {
                self.measuring = Some((before, medians));
                return self.limit;
            }
            let measured_us = medians[1..].iter().sum::<f64>() / f64::from(self.answers);
            let is_same = (0.75..=1.3).contains(&(measured_us / self.usual_us));
            let is_all_queue = measured_us < 0.62 * self.recent_us;
            self.windows = if is_same && !is_all_queue { 0 } else { 95 };
            self.usual_us += (measured_us - self.usual_us) * if is_same { 0.3 } else { 1.0 };
            let target = self.target(before);
            self.recent_us = self.usual_us.max(measured_us);
            return target.min(before);
        }
        if self.usual_us == 0.0 {
            (self.usual_us, self.recent_us, self.windows) = (window.median_us, window.median_us, 95);
            return self.limit;
        }
        self.recent_us += (window.median_us - self.recent_us) * weight / 100.0;
        if self.is_idle(window) {
            self.windows -= 1;
            self.usual_us += (window.median_us - self.usual_us) * weight / 500.0;
            return self.limit;
        }
        let is_expected = (0.8..=2.0).contains(&(self.recent_us / self.usual_us));
        if self.windows >= if is_expected { 100 } else { 5 } && self.limit >= 2.0 {
            (self.measuring, self.answers) = (Some((self.limit, Vec::new())), 0);
            return self.limit * 0.5;
        }
        let target = self.target(self.limit);
        let is_full = window.in_flight + 1.0 > self.limit;
        let target = if is_full { target } else { target.min(self.limit) };
        self.limit + (target - self.limit) * weight / 250.0
    }

    fn target(&self, limit: f64) -> f64 {
        limit * (1.2 * self.usual_us / self.recent_us).clamp(0.5, 1.3) + limit.sqrt()
    }
}
