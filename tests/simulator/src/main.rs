//! The command `sluicegate-simulator`.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use sluicegate_simulator::{Plan, Run};

/// Plays a fleet that shares limits on virtual time, and checks what each key was admitted.
///
/// Equal arguments give an equal report, up to 2,048 keys of all limits together. Exit status: 0 good, 1 a key was admitted more
/// than its quota allows, 2 usage.
#[derive(Parser)]
#[command(name = "sluicegate-simulator", max_term_width = 100, args_override_self = true)]
struct Arguments {
    #[command(flatten)]
    plan: Plan,
    /// Run this many seeds, from --seed on, and print those that are broken.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Draw the policy, the load, the network and the faults from the seed as well.
    #[arg(long)]
    vary: bool,
    /// Write a picture of the run (SVG) here.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan_of = |seed| {
        let plan = arguments.plan.with_seed(seed);
        if arguments.vary { plan.varied() } else { plan }
    };
    let run = |seed| Run::of(&plan_of(seed)).map_err(|error| format!("{error}"));
    let done = if arguments.seeds == 1 {
        run(arguments.plan.seed).and_then(|run| shown(&run, arguments.picture.as_deref()))
    } else {
        many(arguments.plan.seed, arguments.seeds, run)
    };
    done.unwrap_or_else(|problem| {
        eprintln!("sluicegate-simulator: {problem}");
        ExitCode::from(2)
    })
}

fn shown(run: &Run, picture: Option<&std::path::Path>) -> Result<ExitCode, String> {
    println!("{run}");
    if let Some(path) = picture {
        std::fs::write(path, run.picture())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(ExitCode::from(u8::from(!run.broken(run.law()).is_empty())))
}

/// Runs all seeds, as many at a time as the machine has processors.
fn many(first: u64, seeds: u64, run: impl Fn(u64) -> Result<Run, String> + Sync) -> Result<ExitCode, String> {
    let next = AtomicU64::new(first);
    let broken = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let worked: Result<(), String> = std::thread::scope(|scope| {
        let work = || loop {
            // Relaxed, here and below: numbers that order nothing else.
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return Ok::<(), String>(());
            }
            let run = run(seed)?;
            if !run.broken(run.law()).is_empty() {
                broken.fetch_add(1, Ordering::Relaxed);
                println!("{run}");
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a run does not panic"))
    });
    worked?;
    let broken = broken.into_inner();
    println!("{broken} of {seeds} seeds broken");
    Ok(ExitCode::from(u8::from(broken > 0)))
}
