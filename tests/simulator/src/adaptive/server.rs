//! The server: workers, and the requests that wait for them inside of it.

use std::collections::VecDeque;

use sluicegate_tests::random::Random;

use crate::adaptive::Scene;

/// A server at full speed.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Requests that are worked on at once.
    pub workers: usize,
    /// How long the work of one takes on average, in microseconds.
    pub work_us: u64,
    /// How long a client waits for its answer, in microseconds.
    pub patience_us: u64,
}

/// How the time that work takes is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Always the same.
    Constant,
    /// Exponentially.
    Exponential,
    /// With a heavy tail: log-normal, with a standard deviation of 1.2 in the logarithm. One in a hundred takes eight times the average.
    Heavy,
    /// Four in five are found in a cache, and take a hundred and twentieth of the average.
    Cached,
}

impl Default for Server {
    fn default() -> Self {
        Self::new(40, 20_000)
    }
}

impl Server {
    /// A server whose clients wait fifty times as long as the work takes.
    #[must_use]
    pub fn new(workers: usize, work_us: u64) -> Self {
        Self { workers, work_us, patience_us: 50 * work_us }
    }

    /// Requests per second with all workers at full speed.
    pub(super) fn capacity(&self) -> f64 {
        self.workers as f64 * 1e6 / self.work_us as f64
    }
}

impl Times {
    /// The spreads of work of one kind.
    pub const ALL: [Self; 3] = [Self::Constant, Self::Exponential, Self::Heavy];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Exponential => "exponential",
            Self::Heavy => "heavy",
            Self::Cached => "cached",
        }
    }

    /// A multiple of the average.
    pub(super) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Exponential => exponential(random),
            Self::Heavy => (SIGMA * normal(random) - SIGMA * SIGMA / 2.0).exp(),
            Self::Cached if random.below(5) > 0 => 1.0 / 120.0,
            Self::Cached => 5.0 - 4.0 / 120.0,
        }
    }

    /// The time that so many of 1,000 are below, as a multiple of the average.
    pub(super) fn quantile(self, of_1000: usize) -> f64 {
        let mut random = Random::new(1);
        let mut drawn: Vec<f64> = (0..20_000).map(|_| self.draw(&mut random)).collect();
        drawn.sort_by(f64::total_cmp);
        drawn[drawn.len() * of_1000 / 1000]
    }
}

const SIGMA: f64 = 1.2;

/// A multiple of the average of a wait for something that happens at random.
pub(super) fn exponential(random: &mut Random) -> f64 {
    -(1.0 - random.fraction()).ln()
}

fn normal(random: &mut Random) -> f64 {
    let length = (-2.0 * (1.0 - random.fraction()).ln()).sqrt();
    length * (std::f64::consts::TAU * random.fraction()).cos()
}

/// The workers of a server, and the requests that wait for one: first come, first served.
pub(super) struct Workers {
    pub(super) server: Server,
    times: Times,
    random: Random,
    busy: usize,
    queue: VecDeque<usize>,
    /// Whether all stand still, and the requests whose work would have ended meanwhile.
    still: Option<Vec<usize>>,
}

impl Workers {
    pub(super) fn new(server: Server, times: Times, random: Random) -> Self {
        Self { server, times, random, busy: 0, queue: VecDeque::new(), still: None }
    }

    pub(super) fn add(&mut self, request: usize) {
        self.queue.push_back(request);
    }

    /// The next request that finds a worker, and how long its work takes.
    pub(super) fn begin(&mut self, scene: &Scene, now_us: u64) -> Option<(usize, u64)> {
        let workers = (self.server.workers as f64 * scene.phase(now_us).workers).round();
        if self.still.is_some() || self.busy as f64 >= workers {
            return None;
        }
        let request = self.queue.pop_front()?;
        self.busy += 1;
        let crowd = 1.0 + scene.crowds * self.queue.len() as f64 / self.server.workers as f64;
        let work =
            self.server.work_us as f64 * scene.slowness(now_us) * crowd * self.times.draw(&mut self.random);
        Some((request, micros(work)))
    }

    /// Whether the work of a request is done; not while all stand still.
    pub(super) fn end(&mut self, request: usize) -> bool {
        if let Some(held) = &mut self.still {
            held.push(request);
            return false;
        }
        self.busy -= 1;
        true
    }

    pub(super) fn stand_still(&mut self) {
        self.still = Some(Vec::new());
    }

    /// The requests whose work ends now.
    pub(super) fn go_on(&mut self) -> Vec<usize> {
        self.still.take().unwrap_or_default()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "times of a scene are far below the bound")]
pub(super) fn micros(us: f64) -> u64 {
    us.round() as u64
}
