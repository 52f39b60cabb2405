//! What a scene under a limit came to: [`Score`].

use crate::adaptive::{Load, Played, Scene};

/// What a scene under a limit came to.
#[derive(Clone, Copy, Debug)]
pub struct Score {
    /// Requests refused while the server could bear all that came and had been able to for ten seconds (or three of its answers), as a part
    /// of those that came then.
    pub needless: f64,
    /// Seconds from the end of trouble to the last second in which more than one in a hundred was refused, in the worst case.
    pub back: u64,
    /// Seconds in which the median was above twice that of a server with nothing else to do, as far as answers came.
    pub over: u64,
    /// Answers in time, as a part of those that the server could have given.
    pub goodput: f64,
    /// The 99th percentile of all answers, as a multiple of that of a server with nothing else to do.
    pub p99: f64,
}

impl Score {
    /// The score of a scene that was played.
    #[must_use]
    pub fn of(scene: &Scene, played: &Played) -> Self {
        let good = played.answers.iter().filter(|answer| answer.is_good).count() as f64;
        let mut latencies: Vec<u64> =
            played.answers.iter().filter(|answer| answer.is_good).map(|answer| answer.latency_us).collect();
        latencies.sort_unstable();
        let p99 = latencies.get(latencies.len() * 99 / 100).map_or(0.0, |us| *us as f64);
        let longest = scene.times.quantile(990) + scene.phases[0].waits;
        Self {
            needless: needless(scene, played),
            back: back(scene, played),
            over: over(scene, played),
            goodput: good / possible(scene, played),
            p99: p99 / (scene.server.work_us as f64 * longest),
        }
    }
}

impl Score {
    /// The worse of two, column by column.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            needless: self.needless.max(other.needless),
            back: self.back.max(other.back),
            over: self.over.max(other.over),
            goodput: self.goodput.min(other.goodput),
            p99: self.p99.max(other.p99),
        }
    }
}

fn needless(scene: &Scene, played: &Played) -> f64 {
    let calm = (0..scene.seconds).zip(&played.seconds).filter(|(second, _)| scene.is_calm(*second));
    let (came, refused) =
        calm.fold((0, 0), |(came, refused), (_, second)| (came + second.came, refused + second.refused));
    if came == 0 { 0.0 } else { refused as f64 / came as f64 }
}

fn back(scene: &Scene, played: &Played) -> u64 {
    let (mut ended, mut longest) = (None, 0);
    for (second, counts) in (0..scene.seconds).zip(&played.seconds) {
        if scene.is_trouble(second) {
            ended = Some(second + 1);
        } else if let Some(ended) = ended
            && counts.refused * 100 > counts.came
        {
            longest = longest.max(second + 1 - ended);
        }
    }
    longest
}

fn over(scene: &Scene, played: &Played) -> u64 {
    let median = scene.times.quantile(500);
    let mut answers = played.answers.as_slice();
    let is_over = |second: &u64| {
        let (within, after) =
            answers.split_at(answers.partition_point(|answer| answer.at_us < (second + 1) * 1_000_000));
        answers = after;
        let phase = scene.phase(second * 1_000_000);
        let bearable_us =
            2.0 * (median * scene.slowness(second * 1_000_000) + phase.waits) * scene.server.work_us as f64;
        let mut good: Vec<u64> =
            within.iter().filter(|answer| answer.is_good).map(|answer| answer.latency_us).collect();
        good.sort_unstable();
        // Of few answers, the median says little.
        good.len() >= 10 && good[good.len() / 2] as f64 > bearable_us
    };
    (0..scene.seconds).filter(is_over).count() as u64
}

/// No limit brings more answers than there are requests, or than the workers can give.
fn possible(scene: &Scene, played: &Played) -> f64 {
    let is_closed = matches!(scene.load, Load::Closed(_));
    let answered = |second: u64, came: u64| {
        let capacity = scene.capacity(second * 1_000_000);
        if is_closed { capacity } else { capacity.min(came as f64) }
    };
    (0..scene.seconds)
        .zip(&played.seconds)
        .map(|(second, counts)| answered(second, counts.came))
        .sum::<f64>()
        .max(1.0)
}
