//! A scene under several limits, as a row of a table: [`Compared`].

use std::fmt;
use std::ops::Range;

use crate::adaptive::{Limit, Scene, Score, Times, play};

/// A scene under several limits.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The scene.
    pub scene: Scene,
    /// The scores under these limits, each the worst of all kinds of work and seeds.
    pub scores: Vec<Score>,
}

impl Compared {
    /// Plays a scene with work of each kind, once for each limit and seed; a scene with work of its own only with that.
    #[must_use]
    pub fn of(scene: &Scene, limits: &[Limit], seeds: Range<u64>) -> Self {
        let all = if scene.times == Times::Cached { &[Times::Cached][..] } else { &Times::ALL };
        let worst = |limit: &Limit| {
            let scenes = all.iter().map(|times| Scene { times: *times, ..scene.clone() });
            let scores = scenes.flat_map(|scene| {
                seeds.clone().map(move |seed| Score::of(&scene, &play(&scene, seed, *limit)))
            });
            scores.reduce(Score::worse).expect("there are kinds of work and seeds")
        };
        Self { scene: scene.clone(), scores: limits.iter().map(worst).collect() }
    }

    /// The head of a table in Markdown.
    #[must_use]
    pub fn head(limits: &[Limit]) -> String {
        let names: String = limits.iter().map(|limit| format!(" {limit} |")).collect();
        format!("| scene |{names}\n|---|{}", "---|".repeat(limits.len()))
    }
}

impl fmt::Display for Compared {
    /// A row of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |", self.scene.about)?;
        for Score { needless, back, over, goodput, p99 } in &self.scores {
            write!(
                f,
                " {:.1} %, {back} s, {over} s, {:.0} %, {p99:.1}x |",
                needless * 100.0,
                goodput * 100.0
            )?;
        }
        Ok(())
    }
}
