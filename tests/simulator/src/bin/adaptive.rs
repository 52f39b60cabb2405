//! The command `sluicegate-simulator-adaptive`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use sluicegate_in_flight::adaptive::LimitAlgorithm;
use sluicegate_simulator::adaptive::{Compared, Scene, Server, Summary, Times};

/// Plays a server with too much to do behind limits that adapt, on virtual time, and prints a table beside the best fixed number.
///
/// Equal arguments give an equal report.
#[derive(Parser)]
#[command(name = "sluicegate-simulator-adaptive", max_term_width = 100)]
struct Arguments {
    /// Everything that is drawn is drawn from this number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// These scenes only; all of them without it.
    #[arg(long, value_delimiter = ',')]
    scenes: Vec<String>,
    /// How the time that work takes is spread; in all ways without it.
    #[arg(long, value_delimiter = ',')]
    work: Vec<Times>,
    /// These algorithms only; all of them without it.
    #[arg(long, value_delimiter = ',')]
    algorithms: Vec<LimitAlgorithm>,
    /// Workers of the server.
    #[arg(long, default_value_t = 40)]
    workers: usize,
    /// How long the work of a request takes on average, in microseconds.
    #[arg(long, default_value_t = 20_000)]
    work_us: u64,
    /// Seconds of each step of a scene.
    #[arg(long, default_value_t = 20)]
    step: u64,
    /// Print the worst of each scene over all kinds of work, with a column for each algorithm.
    #[arg(long)]
    summary: bool,
    /// Write a picture (SVG) of each scene into this folder.
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("sluicegate-simulator-adaptive: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let Arguments { seed, scenes, work, algorithms, workers, work_us, step, summary, pictures } = arguments;
    let known = Scene::all(step);
    if let Some(name) = scenes.iter().find(|name| known.iter().all(|scene| scene.name != name.as_str())) {
        let names: Vec<_> = known.iter().map(|scene| scene.name).collect();
        return Err(format!("there is no scene {name:?}: use one of {}", names.join(", ")));
    }
    let chosen =
        known.iter().filter(|scene| scenes.is_empty() || scenes.iter().any(|name| name == scene.name));
    let work = if work.is_empty() { Times::ALL.to_vec() } else { work };
    let algorithms = if algorithms.is_empty() { LimitAlgorithm::ALL.to_vec() } else { algorithms };
    let server = Server { workers, work_us, ..Server::default() };
    let plays: Vec<_> = chosen.flat_map(|scene| work.iter().map(move |times| (scene, *times))).collect();
    let compared = at_once(&plays, |(scene, times)| Compared::of(scene, server, *times, seed, &algorithms));
    if summary {
        print!("{}", Summary(&compared));
    } else {
        println!("{}", Compared::HEAD);
    }
    for compared in compared {
        if !summary {
            print!("{compared}");
        }
        if let Some(folder) = &pictures {
            let path = folder.join(format!("{}-{}.svg", compared.scene.name, compared.times.as_str()));
            std::fs::write(&path, compared.picture())
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
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
