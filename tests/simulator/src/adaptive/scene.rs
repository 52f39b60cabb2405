//! What comes, and what befalls the server: [`Scene`].

/// A load on a server, and what befalls both.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The word for it.
    pub name: &'static str,
    /// What happens, in words.
    pub about: &'static str,
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
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Independently of the answers, as those of very many clients do.
    Open,
    /// From so many clients for each worker, each of which waits for its answer before it asks again, and for a tenth to a
    /// fifth of a second when it is refused.
    Closed(usize),
}

const PLAIN: Phase = Phase { from: 0, load: 0.7, workers: 1.0, slower: 1.0, waits: 0.0 };

impl Scene {
    /// All scenes. A step of a scene lasts so many seconds.
    #[must_use]
    pub fn all(step: u64) -> Vec<Self> {
        let at = |steps: u64, phase: Phase| Phase { from: steps * step, ..phase };
        let scene = |name, about, steps: u64, phases: &[Phase]| Self {
            name,
            about,
            phases: phases.to_vec(),
            seconds: steps * step,
            load: Load::Open,
            pauses_ms: None,
            warms_up: 0.0,
        };
        let busy = Phase { load: 1.5, ..PLAIN };
        let full = Phase { load: 4.0, ..PLAIN };
        vec![
            scene("rest", "a load of 0.7, which the server can bear", 3, &[PLAIN]),
            scene("load", "a step of load from 0.7 to 4, and back", 3, &[PLAIN, at(1, full), at(2, PLAIN)]),
            scene("overload", "a load of 4 that lasts", 8, &[full]),
            scene(
                "workers",
                "half of the workers are lost, and come back, at a load of 1.5",
                3,
                &[busy, at(1, Phase { workers: 0.5, ..busy }), at(2, busy)],
            ),
            scene(
                "speed",
                "all work takes twice as long for a time, at a load of 1.5",
                3,
                &[busy, at(1, Phase { slower: 2.0, ..busy }), at(2, busy)],
            ),
            scene(
                "dependency",
                "a wait for something else grows fourfold for a time, at a load of 1.5",
                4,
                &[
                    Phase { waits: 1.0, ..busy },
                    at(1, Phase { waits: 4.0, ..busy }),
                    at(3, Phase { waits: 1.0, ..busy }),
                ],
            ),
            Self {
                pauses_ms: Some((2_000, 200)),
                ..scene(
                    "pauses",
                    "all stands still for 0.2 s every 2 s, at a load of 2",
                    3,
                    &[Phase { load: 2.0, ..PLAIN }],
                )
            },
            Self {
                warms_up: step as f64,
                ..scene("start", "a start at a fifth of the speed, at a load of 1.5", 3, &[busy])
            },
            Self {
                load: Load::Closed(25),
                ..scene("closed", "25 clients for each worker, who wait for their answers", 3, &[PLAIN])
            },
        ]
    }

    /// The scene of this name.
    #[must_use]
    pub fn named(name: &str, step: u64) -> Option<Self> {
        Self::all(step).into_iter().find(|scene| scene.name == name)
    }

    /// What holds at this moment.
    pub(super) fn phase(&self, at_us: u64) -> Phase {
        let begun = self.phases.iter().rev().find(|phase| phase.from * 1_000_000 <= at_us);
        *begun.unwrap_or(&self.phases[0])
    }

    /// How many times as long as at full speed the work takes at this moment.
    pub(super) fn slowness(&self, at_us: u64) -> f64 {
        let warmth = if self.warms_up > 0.0 { (at_us as f64 / 1e6 / self.warms_up).min(1.0) } else { 1.0 };
        self.phase(at_us).slower * (5.0 - 4.0 * warmth)
    }
}
