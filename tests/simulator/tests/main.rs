//! The simulator: that its runs can be repeated, that it finds what is wrong, and that nothing is.

use sluicegate_simulator::{Law, Plan, Run};

fn run(arguments: &str) -> Run {
    let plan = Plan::parsed(arguments.split(' ')).expect("the arguments are right");
    Run::of(&plan).expect("the policy is possible")
}

const FAULTS: &str = "--instances 9 --requests 6000 --keys 30 --wrap resilient,leased,deny --loss 20 --skew 200 --crashes 5 \
                      --partitions 2 --flushes 1 --resets 3 --refunds 50 --closes 2";

/// How many seeds each stack has, if it is not the few of a plain run.
const SEEDS: &str = "SLUICEGATE_SEEDS";

/// Each stack of stores around stores, with everything else drawn from the seed. A thousand seeds of a full size are for the
/// command: `--vary --seeds 1000`.
const STACKS: [&str; 6] = [
    "--regions 1",
    "--wrap resilient",
    "--wrap leased",
    "--wrap resilient,leased,deny",
    "--wrap sharded,resilient,leased,deny",
    "--wrap regional,resilient,leased,deny --regions 3",
];

#[test]
fn no_key_is_admitted_more_than_its_quota_allows_whatever_befalls_the_fleet() {
    let run = |stack: usize, seed: u64| {
        let arguments = format!("{} --instances 20 --keys 40 --requests 3000", STACKS[stack]);
        let plan =
            Plan::parsed(arguments.split(' ')).expect("the arguments are right").with_seed(seed).varied();
        let run = Run::of(&plan).expect("the policy is possible");
        assert_eq!(run.broken(run.law()), [], "{run}");
    };
    let seeds = std::env::var(SEEDS).map_or(5, |seeds| seeds.parse().expect("a number of seeds"));
    std::thread::scope(|scope| {
        for stack in 0..STACKS.len() {
            scope.spawn(move || (0..seeds).for_each(|seed| run(stack, seed)));
        }
    });
}

#[test]
fn a_seed_gives_the_same_report_and_the_same_picture_each_time() {
    let [first, second] = [(); 2].map(|()| run(FAULTS));
    assert_eq!(first.to_string(), second.to_string());
    assert_eq!(first.picture(), second.picture());
    assert_ne!(first.to_string(), run(&format!("{FAULTS} --seed 2")).to_string());
}

#[test]
fn a_law_that_is_one_unit_too_strict_is_broken() {
    let run = run("--instances 9 --requests 6000 --keys 30 --quota 20/s");
    assert_eq!(run.broken(run.law()), []);
    let strict = Law::of(run.plan.algorithm, &"20/s burst 19".parse().expect("it is a quota"));
    let broken = run.broken(strict);
    assert!(broken.iter().any(|broken| broken.excess.units == 1), "{broken:?}");
}
