//! The command `sluicegate-simulator-adaptive`.

use std::process::ExitCode;
use std::thread;

use clap::Parser;
use sluicegate_in_flight::adaptive::LimitAlgorithm;
use sluicegate_simulator::adaptive::{Compared, Limit, Reference, Scene};

/// Plays a server behind limits that adapt, on virtual time, and prints a table.
///
/// A cell has the worst of three spreads of work, and of the seeds: requests refused without need, the seconds from the end of trouble until all are admitted,
/// the seconds with a median above twice that of an idle server, good answers as a part of those that the server could have given at best,
/// and their 99th percentile as a multiple of that of an idle server. Equal arguments give an equal report.
#[derive(Parser)]
#[command(name = "sluicegate-simulator-adaptive", max_term_width = 100)]
struct Arguments {
    /// Everything that is drawn is drawn from this number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plays each scene with so many seeds, from `--seed` on.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// These scenes only; all of them without it.
    #[arg(long, value_delimiter = ',')]
    scenes: Vec<String>,
    /// Only the algorithms of this project, without references.
    #[arg(long)]
    ours: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("sluicegate-simulator-adaptive: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let known = Scene::all();
    if let Some(name) =
        arguments.scenes.iter().find(|name| known.iter().all(|scene| scene.name != name.as_str()))
    {
        let names: Vec<_> = known.iter().map(|scene| scene.name).collect();
        return Err(format!("there is no scene {name:?}: use one of {}", names.join(", ")));
    }
    let is_asked =
        |scene: &Scene| arguments.scenes.is_empty() || arguments.scenes.iter().any(|name| name == scene.name);
    let scenes: Vec<_> = known.into_iter().filter(is_asked).collect();
    let references = Reference::ALL.map(Limit::Reference).into_iter().filter(|_| !arguments.ours);
    let limits: Vec<_> = LimitAlgorithm::ALL.map(Limit::Adaptive).into_iter().chain(references).collect();
    let seeds = arguments.seed..arguments.seed.saturating_add(arguments.seeds);
    println!("{}", Compared::head(&limits));
    for compared in at_once(&scenes, |scene| Compared::of(scene, &limits, seeds.clone())) {
        println!("{compared}");
    }
    Ok(())
}

/// The results in their order, worked out by as many threads as there are processors.
fn at_once<T: Sync, R: Send>(all: &[T], one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = all.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let begin = |part: &'_ [T]| part.iter().map(&one).collect::<Vec<_>>();
        let parts: Vec<_> = all.chunks(part).map(|part| scope.spawn(move || begin(part))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("a play does not panic")).collect()
    })
}
