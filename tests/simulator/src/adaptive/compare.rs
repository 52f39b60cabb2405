//! A scene under several limits: [`Compared`].

use sluicegate_in_flight::adaptive::LimitAlgorithm;

use crate::adaptive::{Answer, Limit, Played, Scene, Server, Times, play};

/// A scene under the best fixed number and under algorithms.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The scene.
    pub scene: Scene,
    /// How the work is spread.
    pub times: Times,
    /// The fixed number under which most requests got their answer in time.
    pub best: u64,
    /// How many those were.
    pub best_good: usize,
    /// The algorithms.
    pub rows: Vec<Row>,
}

/// How an algorithm did.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which one.
    pub algorithm: LimitAlgorithm,
    /// What came of it.
    pub played: Played,
    /// Answers in time, as a multiple of those under the best fixed number.
    pub goodput: f64,
    /// The 99th percentile of all answers, as a multiple of that of a server that has nothing else to do.
    pub p99: f64,
    /// After the slowest step, in how many seconds goodput was back at 90 % of the best fixed number's, and the median at
    /// most twice that of a server that has nothing else to do. None in scenes without steps.
    pub recovered: Option<u64>,
    /// The standard deviation of the limit at rest, in the second half of the scene's last phase, as a part of its average.
    pub swing: f64,
}

impl Compared {
    /// Plays a scene under fixed numbers from the number of workers to eight times as many, and under these algorithms.
    #[must_use]
    pub fn of(scene: &Scene, server: Server, times: Times, seed: u64, algorithms: &[LimitAlgorithm]) -> Self {
        let workers = server.workers as u64;
        let fixed = [4, 5, 6, 8, 12, 20, 32].map(|quarters| (workers * quarters / 4).max(1));
        let plays = fixed.map(|number| (number, play(scene, server, times, seed, Limit::Fixed(number))));
        // Of numbers that are as good, the smallest.
        let (best, reference) = plays
            .into_iter()
            .reduce(|best, other| if good(&other.1) > good(&best.1) { other } else { best })
            .expect("there are several");
        let row = |algorithm: &LimitAlgorithm| {
            let played = play(scene, server, times, seed, Limit::Adaptive(*algorithm));
            Row {
                algorithm: *algorithm,
                goodput: good(&played) as f64 / good(&reference) as f64,
                p99: p99(&played) / (server.work_us as f64 * unloaded(scene, times)),
                recovered: recovered(scene, server, times, &played, &reference),
                swing: swing(scene, &played),
                played,
            }
        };
        let rows = algorithms.iter().map(row).collect();
        Self { scene: scene.clone(), times, best, best_good: good(&reference), rows }
    }
}

fn good(played: &Played) -> usize {
    played.answers.iter().filter(|answer| answer.is_good).count()
}

fn p99(played: &Played) -> f64 {
    percentile(played.answers.iter(), 99)
}

fn percentile<'a>(answers: impl Iterator<Item = &'a Answer>, percent: usize) -> f64 {
    let mut latencies: Vec<u64> = answers.map(|answer| answer.latency_us).collect();
    latencies.sort_unstable();
    latencies.get(latencies.len() * percent / 100).map_or(0.0, |us| *us as f64)
}

/// The 99th percentile of a server that has nothing else to do, as a multiple of the average work.
fn unloaded(scene: &Scene, times: Times) -> f64 {
    times.quantile(990) + scene.phases[0].waits
}

fn recovered(scene: &Scene, server: Server, times: Times, played: &Played, best: &Played) -> Option<u64> {
    let in_second = |played: &Played, second: u64| -> Vec<Answer> {
        let answers = played.answers.iter();
        answers.filter(|answer| answer.at_us / 1_000_000 == second).copied().collect()
    };
    let median = times.quantile(500);
    let is_back = |second: u64| {
        let phase = scene.phase(second * 1_000_000);
        let answers = in_second(played, second);
        let good = |answers: &[Answer]| answers.iter().filter(|answer| answer.is_good).count() as f64;
        let unloaded = (median * phase.slower + phase.waits) * server.work_us as f64;
        good(&answers) >= 0.9 * good(&in_second(best, second))
            && percentile(answers.iter(), 50) <= 2.0 * unloaded
    };
    let steps = scene.phases.iter().skip(1).map(|phase| phase.from);
    steps.map(|step| (step..scene.seconds).position(is_back).map_or(scene.seconds, |at| at as u64)).max()
}

/// By time, not by change: a limit that lasts counts for as long as it does.
fn swing(scene: &Scene, played: &Played) -> f64 {
    let last = scene.phases.last().map_or(0, |phase| phase.from);
    let (from_us, to_us) = ((last + scene.seconds) * 500_000, scene.seconds * 1_000_000);
    let ends = played.limits.iter().skip(1).map(|(at_us, _)| *at_us).chain([to_us]);
    let spans = played.limits.iter().zip(ends).filter_map(|((begin_us, limit), end_us)| {
        let lasts = end_us.min(to_us).checked_sub(*begin_us.max(&from_us))?;
        Some((lasts as f64, *limit as f64))
    });
    let (mut time, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (lasts, limit) in spans {
        time += lasts;
        sum += lasts * limit;
        squares += lasts * limit * limit;
    }
    let mean = sum / time;
    (squares / time - mean * mean).max(0.0).sqrt() / mean
}
