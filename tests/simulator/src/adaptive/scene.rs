//! What comes, and what befalls the server: [`Scene`].

use sluicegate_in_flight::adaptive::Outcome;

use crate::adaptive::{Server, Times};

/// A load on a server, and what befalls both.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The word for it.
    pub name: &'static str,
    /// What happens, in words.
    pub about: &'static str,
    /// The server at full speed.
    pub server: Server,
    /// How the work is spread.
    pub times: Times,
    /// How it goes on, each from a moment on.
    pub phases: Vec<Phase>,
    /// When it is over, in seconds.
    pub seconds: u64,
    /// How the requests come.
    pub load: Load,
    /// Every so many milliseconds all workers stand still for so many.
    pub pauses_ms: Option<(u64, u64)>,
    /// In how many seconds a server that starts at a fifth of its speed comes to all of it.
    pub warms_up: f64,
    /// How much longer the work takes when as many requests wait for a worker as there are workers, as a part of its time.
    pub crowds: f64,
    /// The number of limits that share the server, each with a part of the requests.
    pub instances: usize,
    /// Whether the first of them get more requests than the last.
    pub is_uneven: bool,
    /// The number before the first answers, and the largest number.
    pub first: u64,
    /// The largest number.
    pub at_most: u64,
    /// The longest wait of a request for a permit.
    pub wait_us: u64,
}

/// A part of a scene.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// The second at which it begins.
    pub from: u64,
    /// Requests that come, as a multiple of what all workers can do at full speed.
    pub load: f64,
    /// The part of the workers that work.
    pub workers: f64,
    /// How much longer the work takes.
    pub slower: f64,
    /// Times that a request waits for something else before it meets a worker, as a multiple of its work.
    pub waits: f64,
    /// No request is worked on: each is answered by an error of this kind after so many microseconds.
    pub fails: Option<(Outcome, u64)>,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Independently of the answers, as those of very many clients do.
    Open,
    /// As `Open`, with so many more at once every so many seconds.
    Bursts {
        /// The requests of a burst.
        of: usize,
        /// The seconds from burst to burst.
        every: u64,
    },
    /// From so many clients for each worker, each of which waits for its answer before it asks again, and for a tenth to a
    /// fifth of a second when it is refused.
    Closed(usize),
}

const PLAIN: Phase = Phase { from: 0, load: 0.7, workers: 1.0, slower: 1.0, waits: 0.0, fails: None };
const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

impl Scene {
    /// All scenes.
    #[must_use]
    pub fn all() -> Vec<Self> {
        [overloads(), other_overloads(), outages(), latencies(), changes()].concat()
    }

    /// The scene of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|scene| scene.name == name)
    }

    /// Answers of this many a second, each after `work_us`, from a server that could bear four times as many.
    fn steady(name: &'static str, about: &'static str, per_second: f64, work_us: u64, seconds: u64) -> Self {
        let workers = (per_second * work_us as f64 / 1e6 * 4.0).ceil().max(4.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a small number")]
        let server = Server::new(workers as usize, work_us);
        let load = per_second / server.capacity();
        Self { server, seconds, ..Self::of(name, about, &[Phase { load, ..PLAIN }]) }
    }

    fn of(name: &'static str, about: &'static str, phases: &[Phase]) -> Self {
        Self {
            name,
            about,
            server: Server::default(),
            times: Times::Exponential,
            phases: phases.to_vec(),
            seconds: 60,
            load: Load::Open,
            pauses_ms: None,
            warms_up: 0.0,
            crowds: 0.0,
            instances: 1,
            is_uneven: false,
            first: 20,
            at_most: 1_000,
            wait_us: 100 * MS,
        }
    }

    /// The settings of the cookbook's recipe for language models.
    fn by_recipe(self) -> Self {
        Self { first: 8, at_most: 256, wait_us: 20 * SECOND, ..self }
    }

    /// Between these seconds, all requests fail.
    fn failing(mut self, from: u64, until: u64, outcome: Outcome, after_us: u64) -> Self {
        let first = self.phases[0];
        self.phases.push(Phase { from, fails: Some((outcome, after_us)), ..first });
        self.phases.push(Phase { from: until, ..first });
        self
    }

    /// From this second on the work takes so many times as long.
    fn slower(mut self, from: u64, slower: f64) -> Self {
        let first = self.phases[0];
        self.phases.push(Phase { from, slower, ..first });
        self
    }

    /// What holds at this moment.
    pub(super) fn phase(&self, at_us: u64) -> Phase {
        let begun = self.phases.iter().rev().find(|phase| phase.from * SECOND <= at_us);
        *begun.unwrap_or(&self.phases[0])
    }

    /// How many times as long as at full speed the work takes at this moment.
    pub(super) fn slowness(&self, at_us: u64) -> f64 {
        let warmth = if self.warms_up > 0.0 { (at_us as f64 / 1e6 / self.warms_up).min(1.0) } else { 1.0 };
        self.phase(at_us).slower * (5.0 - 4.0 * warmth)
    }

    /// Requests per second that the server can answer at this moment: no limit can make them more.
    pub(super) fn capacity(&self, at_us: u64) -> f64 {
        let phase = self.phase(at_us);
        let part = self.pauses_ms.map_or(1.0, |(every_ms, for_ms)| 1.0 - for_ms as f64 / every_ms as f64);
        if phase.fails.is_some() {
            0.0
        } else {
            self.server.capacity() * phase.workers * part / self.slowness(at_us)
        }
    }

    /// Requests per second that come at this moment, of those that do not wait for answers.
    pub(super) fn rate(&self, at_us: u64) -> f64 {
        self.server.capacity() * self.phase(at_us).load
    }

    /// Whether the server cannot answer all that come in this second.
    pub(super) fn is_trouble(&self, second: u64) -> bool {
        let at_us = second * SECOND;
        matches!(self.load, Load::Closed(_))
            || self.rate(at_us) > 0.95 * self.capacity(at_us)
            || self.pauses_ms.is_some()
    }

    /// Whether the server can answer all that come, and could for ten seconds, or for three of its answers.
    pub(super) fn is_calm(&self, second: u64) -> bool {
        let answer = self.server.work_us as f64 * self.slowness(second * SECOND) / 1e6;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a small number")]
        let settled = 10_u64.max((3.0 * answer).ceil() as u64);
        (second.saturating_sub(settled)..=second).all(|second| !self.is_trouble(second))
    }
}

/// Real overload.
fn overloads() -> Vec<Scene> {
    let at = |from: u64, phase: Phase| Phase { from, ..phase };
    let busy = Phase { load: 1.5, ..PLAIN };
    let full = Phase { load: 4.0, ..PLAIN };
    let waits = |times: f64| Phase { waits: times, ..busy };
    let load = [PLAIN, at(20, full), at(40, PLAIN)];
    vec![
        Scene::of("load", "a step of load from 0.7 to 4, and back", &load),
        Scene { seconds: 80, ..Scene::of("overload", "a load of 4 that lasts", &[full]) },
        Scene::of(
            "workers",
            "half of the workers are lost, and come back, at a load of 1.5",
            &[busy, at(20, Phase { workers: 0.5, ..busy }), at(40, busy)],
        ),
        Scene::of(
            "speed",
            "all work takes twice as long for a time, at a load of 1.5",
            &[busy, at(20, Phase { slower: 2.0, ..busy }), at(40, busy)],
        ),
        Scene::of(
            "deploy-busy",
            "all work takes three times as long for good, at a load of 1.5",
            &[busy, at(20, Phase { slower: 3.0, ..busy })],
        ),
        Scene {
            seconds: 80,
            ..Scene::of(
                "dependency",
                "a wait for something else grows fourfold for a time, at a load of 1.5",
                &[waits(1.0), at(20, waits(4.0)), at(60, waits(1.0))],
            )
        },
        Scene {
            pauses_ms: Some((2_000, 200)),
            ..Scene::of(
                "pauses",
                "all stands still for 0.2 s every 2 s, at a load of 2",
                &[Phase { load: 2.0, ..PLAIN }],
            )
        },
        Scene {
            warms_up: 20.0,
            ..Scene::of("start", "a start at a fifth of the speed, at a load of 1.5", &[busy])
        },
        Scene {
            load: Load::Closed(25),
            ..Scene::of(
                "closed",
                "25 clients for each worker, who wait for their answers, and retry",
                &[PLAIN],
            )
        },
        Scene {
            instances: 10,
            ..Scene::of(
                "neighbours",
                "ten instances before one server, from a load of 0.7 to 1.5, and back",
                &[PLAIN, at(20, busy), at(40, PLAIN)],
            )
        },
        Scene {
            server: Server::new(40, SECOND),
            seconds: 300,
            ..Scene::of(
                "models",
                "answers of a second, a step of load from 0.7 to 2, and back",
                &[PLAIN, at(100, Phase { load: 2.0, ..PLAIN }), at(200, PLAIN)],
            )
        },
    ]
}

/// Real overload that found a fault of an algorithm.
fn other_overloads() -> Vec<Scene> {
    let peak = |from, until, load| vec![PLAIN, Phase { from, load, ..PLAIN }, Phase { from: until, ..PLAIN }];
    let ten = |name, about| Scene {
        instances: 10,
        seconds: 320,
        phases: peak(20, 300, 1.5),
        ..Scene::of(name, about, &[PLAIN])
    };
    vec![
        ten("ten-long", "ten instances before one server, at a load of 1.5 for five minutes"),
        Scene {
            is_uneven: true,
            ..ten("ten-uneven", "the same, and the first instance gets nineteen times as much as the last")
        },
        Scene {
            crowds: 0.5,
            ..Scene::of(
                "crowds",
                "a server that too many requests slow down, from a load of 0.7 to 1.5, and back",
                &peak(20, 40, 1.5),
            )
        },
        Scene {
            times: Times::Cached,
            server: Server::new(40, 600 * MS),
            seconds: 300,
            ..Scene::of(
                "cached-busy",
                "four in five are cached and the others take 3 s, from a load of 0.7 to 1.5, and back",
                &peak(100, 200, 1.5),
            )
        },
        Scene {
            server: Server::new(40, 10 * SECOND),
            seconds: 1_500,
            ..Scene::of(
                "10s-busy",
                "answers of ten seconds, from a load of 0.7 to 2, and back",
                &peak(500, 1_000, 2.0),
            )
        },
    ]
}

/// Errors that do not speak of load, and errors that do and end.
fn outages() -> Vec<Scene> {
    use Outcome::{Error, Overload};
    let api = |name, about| Scene::steady(name, about, 400.0, 20 * MS, 60);
    let model = |name, about| Scene::steady(name, about, 7.0, SECOND, 200).by_recipe();
    vec![
        api("errors-5s", "400/s of 20 ms; for 5 s a 500 after 5 ms").failing(4, 9, Error, 5 * MS),
        model("errors-llm", "the recipe, 7/s of 1 s; for 10 s a 502 after 5 ms").failing(
            20,
            30,
            Error,
            5 * MS,
        ),
        api("errors-1s", "400/s of 20 ms; for 1 s an error after 1 ms").failing(20, 21, Error, MS),
        Scene { seconds: 120, ..api("errors-60s", "400/s of 20 ms; for 60 s an error after 1 ms") }
            .failing(20, 80, Error, MS),
        Scene { seconds: 120, ..api("errors-slow", "400/s of 20 ms; for 60 s an error after 1 s") }
            .failing(20, 80, Error, SECOND),
        api("busy-1ms", "400/s of 20 ms; for 10 s a 503 after 1 ms").failing(20, 30, Overload, MS),
        Scene { seconds: 120, ..api("busy-1s", "400/s of 20 ms; for 60 s a 503 after 1 s") }
            .failing(20, 80, Overload, SECOND),
        model("busy-llm", "the recipe, 7/s of 1 s; for 60 s a 503 after 1 ms").failing(20, 80, Overload, MS),
        Scene::steady("busy-slow", "2/s of 10 s; for 60 s a 503 after 1 ms", 2.0, 10 * SECOND, 600)
            .failing(200, 260, Overload, MS),
    ]
}

/// No trouble at all, at all latencies.
fn latencies() -> Vec<Scene> {
    let steady = Scene::steady;
    vec![
        Scene::of("rest", "a load of 0.7, which the server can bear", &[PLAIN]),
        steady("5ms-1", "1/s of 5 ms", 1.0, 5 * MS, 200),
        steady("5ms-5000", "5,000/s of 5 ms", 5_000.0, 5 * MS, 60),
        steady("100ms-100", "100/s of 100 ms", 100.0, 100 * MS, 120),
        steady("100ms-3000", "3,000/s of 100 ms", 3_000.0, 100 * MS, 60),
        steady("1s-1", "1/s of 1 s", 1.0, SECOND, 300),
        steady("1s-15", "15/s of 1 s", 15.0, SECOND, 300),
        steady("1s-500", "500/s of 1 s", 500.0, SECOND, 200),
        steady("llm-7", "the recipe, 7/s of 1 s", 7.0, SECOND, 200).by_recipe(),
        steady("llm-4", "the recipe, 4/s of 3 s", 4.0, 3 * SECOND, 300).by_recipe(),
        steady("10s-1", "1/s of 10 s", 1.0, 10 * SECOND, 600),
        steady("10s-30", "30/s of 10 s", 30.0, 10 * SECOND, 600),
        steady("60s-1", "1/s of 60 s", 1.0, 60 * SECOND, 2_000),
        steady("60s-10", "10/s of 60 s", 10.0, 60 * SECOND, 2_000),
        Scene {
            times: Times::Cached,
            ..steady(
                "cached",
                "50/s, of which four in five are cached and the others take 3 s",
                50.0,
                600 * MS,
                300,
            )
        },
        Scene {
            instances: 10,
            ..Scene::of("ten", "ten instances before one server, at a load of 0.7", &[PLAIN])
        },
    ]
}

/// Changes that the server can bear.
fn changes() -> Vec<Scene> {
    let steady = Scene::steady;
    let bursts = |name, about, of, per_second, work_us| Scene {
        server: Server::new(200, work_us),
        load: Load::Bursts { of, every: 3 },
        seconds: 120,
        ..Scene::of(name, about, &[Phase { load: per_second * work_us as f64 / 200e6, ..PLAIN }])
    };
    vec![
        bursts("bursts", "200 workers of 50 ms; bursts of 60 every 3 s, 5/s between", 60, 5.0, 50 * MS),
        bursts("bursts-slow", "200 workers of 1 s; bursts of 60 every 3 s, 1/s between", 60, 1.0, SECOND),
        Scene {
            load: Load::Bursts { of: 100, every: 60 },
            seconds: 1_200,
            server: Server::new(200, 50 * MS),
            ..Scene::of(
                "silence",
                "bursts of 100 after a minute of silence",
                &[Phase { load: 1e-4, ..PLAIN }],
            )
        },
        steady("deploy", "400/s of 20 ms, and of 40 ms for good", 400.0, 20 * MS, 120).slower(30, 2.0),
        steady("deploy-3", "400/s of 20 ms, and of 60 ms for good", 400.0, 20 * MS, 120).slower(30, 3.0),
        steady("deploy-llm", "the recipe, 7/s of 1 s, and of 2 s for good", 7.0, SECOND, 300)
            .by_recipe()
            .slower(60, 2.0),
        steady("deploy-slow", "15/s of 1 s, and of 3 s for good", 15.0, SECOND, 600).slower(100, 3.0),
        Scene {
            phases: (0..20)
                .map(|step| Phase { from: step * 10, load: 0.25, slower: 1.0 + step as f64 / 8.0, ..PLAIN })
                .collect(),
            seconds: 200,
            ..Scene::of(
                "drift",
                "a load of 0.25; the work takes longer and longer, up to threefold",
                &[PLAIN],
            )
        },
        Scene {
            phases: vec![
                Phase { load: 0.05, ..PLAIN },
                Phase { from: 30, load: 0.8, ..PLAIN },
                Phase { from: 60, load: 0.05, ..PLAIN },
                Phase { from: 90, load: 0.8, ..PLAIN },
            ],
            seconds: 120,
            server: Server::new(200, 50 * MS),
            ..Scene::of("peak", "a step from a load of 0.05 to 0.8, and back, twice", &[PLAIN])
        },
    ]
}
