//! The simulator: that its runs can be repeated, that it finds what is wrong, and that nothing is.

mod adaptive;
mod service;

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
    let seeds = std::env::var(SEEDS).map_or(4, |seeds| seeds.parse().expect("a number of seeds"));
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

/// All that was decided, to the microsecond, and not only its sums. Tables of two keys to a set are the likeliest to forget one.
#[test]
fn all_stacks_decide_the_same_each_time_whatever_befalls_the_fleet() {
    const FAULTS: &str = "--instances 9 --requests 1500 --keys 30 --asks 3 --cost 3 --quota 5/s --zipf 0.5 --loss 50 \
                          --delay 5000 --skew 400 --refunds 100 --crashes 4 --closes 2 --partitions 2 --pauses 2 --flushes 1 \
                          --failovers 2 --replacements 3 --resets 3";
    let repeat = |stack: &str, algorithm: &str| {
        let quota =
            if stack.contains("regional") || stack.contains("sharded") { " --quota 25/s" } else { "" };
        let arguments = format!("{FAULTS} {stack} --algorithm {algorithm}{quota}");
        let [first, second] = [(); 2].map(|()| run(&arguments));
        assert_eq!(first.to_string(), second.to_string());
        assert!(format!("{first:?}") == format!("{second:?}"), "{first}");
        assert!(first.calls > 100 && first.log.decisions() > 1_400, "{first}");
        assert_eq!((first.forgotten, first.broken(first.law())), (0, vec![]), "{first}");
    };
    std::thread::scope(|scope| {
        for stack in STACKS {
            scope.spawn(move || ["gcra", "sliding-counter"].map(|algorithm| repeat(stack, algorithm)));
        }
    });
}

#[test]
fn a_law_that_is_one_unit_too_strict_is_broken() {
    let run = run("--instances 9 --requests 6000 --keys 30 --quota 20/s");
    assert_eq!(run.broken(run.law()), []);
    let strict = Law::of(run.plan.algorithm, &"20/s burst 19".parse().expect("it is a quota"));
    let broken = run.broken(strict);
    assert!(broken.iter().any(|broken| broken.excess.units == 1), "{broken:?}");
}

/// The check would find it, were it not said when the store lost what.
#[test]
fn a_replica_that_is_behind_admits_again_what_it_has_not_heard_of_and_no_more() {
    for wrap in ["", "--wrap resilient,leased,deny "] {
        let mut run = run(&format!(
            "{wrap}--instances 9 --requests 9000 --keys 9 --quota 40/2s --load 3 --failovers 3 --refunds 20 --seed 3"
        ));
        assert_eq!(run.broken(run.law()), [], "{run}");
        run.log.losses.iter_mut().for_each(Vec::clear);
        assert_ne!(run.broken(run.law()), [], "{run}");
    }
}

#[test]
fn policies_that_are_replaced_on_all_instances_admit_what_each_allows_in_its_time() {
    for wrap in ["", "--wrap resilient,leased,deny "] {
        let mut run = run(&format!(
            "{wrap}--instances 9 --requests 9000 --keys 9 --quota 40/2s --load 3 --replacements 2 --asks 2"
        ));
        assert_eq!(run.broken(run.law()), [], "{run}");
        assert_eq!(run.quotas.iter().map(|(_, quota)| quota.limit()).collect::<Vec<_>>(), [40, 80, 40]);
        // In between it was twice as much.
        run.quotas.truncate(1);
        assert_ne!(run.broken(run.law()), [], "{run}");
    }
}

#[test]
fn a_request_with_several_limits_spends_of_all_or_of_none() {
    for wrap in ["", "--wrap resilient,leased,deny "] {
        let run = run(&format!("{wrap}--instances 5 --requests 6000 --keys 20 --asks 3 --load 2"));
        assert_eq!(run.broken(run.law()), [], "{run}");
        let keys = run.plan.keys;
        let of = |limit: usize| run.log.shared[limit * keys..][..keys].iter().flatten();
        let units = [0, 1, 2].map(|limit| of(limit).map(|one| one.units).sum::<u64>());
        assert!(units[0] > 500 && units == [units[0]; 3], "{units:?}");
    }
}
