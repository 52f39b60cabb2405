//! The formulas of the sources, in floats, to compare with.

/// `Gradient2Limit` of Netflix' concurrency-limits, with its defaults and without bounds.
pub(super) struct Gradient2Reference {
    pub(super) limit: f64,
    long: f64,
    windows: u32,
}

impl Gradient2Reference {
    pub(super) fn new(first: u64) -> Self {
        Self { limit: first as f64, long: 0.0, windows: 0 }
    }

    pub(super) fn next(&mut self, latency_us: u64, in_flight: u64) -> f64 {
        let short = latency_us as f64;
        if self.windows < 10 {
            self.windows += 1;
            self.long += (short - self.long) / f64::from(self.windows);
        } else {
            self.long += (short - self.long) * 2.0 / 601.0;
        }
        let long = self.long;
        if long / short > 2.0 {
            self.long *= 0.95;
        }
        if (in_flight as f64) < self.limit.floor() / 2.0 {
            return self.limit;
        }
        let gradient = (1.5 * long / short).clamp(0.5, 1.0);
        self.limit = self.limit * 0.8 + (self.limit * gradient + 4.0) * 0.2;
        self.limit
    }
}
