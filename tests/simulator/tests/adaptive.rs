//! The aims of the default among the algorithms, scene by scene, and what the former default misses of them.

use sluicegate_in_flight::adaptive::LimitAlgorithm;
use sluicegate_simulator::adaptive::{Compared, Limit, Reference, Scene, Score, Times, play};

const OURS: Limit = Limit::Adaptive(LimitAlgorithm::Gradient);
const FORMER: Limit = Limit::Reference(Reference::Former);

/// These scenes with exponential work, or their own; a build without optimization plays no long ones of thousands a second.
fn scores(names: &[&'static str], limit: Limit) -> Vec<(&'static str, Score)> {
    let score = |name: &&'static str| {
        let scene = Scene::named(name).expect("it is one of them");
        (*name, Score::of(&scene, &play(&scene, 1, limit)))
    };
    names.iter().map(score).collect()
}

const CALM: [&str; 16] = [
    "rest",
    "5ms-1",
    "100ms-100",
    "1s-1",
    "1s-15",
    "llm-7",
    "llm-4",
    "10s-1",
    "60s-1",
    "cached",
    "ten",
    "bursts",
    "bursts-slow",
    "silence",
    "deploy-llm",
    "deploy-slow",
];
const OUTAGES: [&str; 9] = [
    "errors-5s",
    "errors-llm",
    "errors-1s",
    "errors-60s",
    "errors-slow",
    "busy-1ms",
    "busy-1s",
    "busy-llm",
    "busy-slow",
];

#[test]
fn at_most_one_in_a_hundred_is_refused_without_need_where_there_is_no_overload() {
    for (name, score) in
        scores(&[&CALM[..], &OUTAGES, &["load", "deploy", "deploy-3", "drift"]].concat(), OURS)
    {
        assert!(score.needless <= 0.01, "{name}: {score:?}");
    }
}

#[test]
fn all_are_admitted_ten_seconds_or_three_answers_after_the_end_of_trouble() {
    for (name, score) in scores(&[&OUTAGES[..], &["load", "neighbours", "models"]].concat(), OURS) {
        assert!(score.back <= if name == "busy-slow" { 30 } else { 10 }, "{name}: {score:?}");
    }
}

#[test]
fn under_real_overload_goodput_is_at_most_two_hundredths_below_the_former_default_and_the_slowest_answers_are_about_as_fast()
 {
    let names = ["load", "overload", "workers", "speed", "deploy-busy", "dependency", "closed", "pauses"];
    for ((name, ours), (_, former)) in scores(&names, OURS).into_iter().zip(scores(&names, FORMER)) {
        assert!(ours.goodput >= former.goodput.min(0.98) - 0.02, "{name}: {ours:?}, {former:?}");
        assert!(ours.p99 <= former.p99 * 1.15, "{name}: {ours:?}, {former:?}");
    }
}

#[test]
fn instances_that_overload_one_server_do_not_teach_each_other_its_latency() {
    let scene = Scene { seconds: 120, ..Scene::named("ten-long").expect("it is one of them") };
    let score = Score::of(&scene, &play(&scene, 1, OURS));
    assert!(score.goodput > 0.98 && score.p99 < 2.0, "{score:?}");
}

#[test]
fn the_former_default_refused_healthy_traffic_and_stayed_down_after_errors() {
    for (name, score) in scores(&["errors-llm", "llm-7", "llm-4", "1s-15"], FORMER) {
        assert!(score.needless > 0.05, "{name}: {score:?}");
    }
    assert!(scores(&["errors-llm"], FORMER)[0].1.back > 60);
}

#[test]
fn equal_arguments_give_equal_reports() {
    let [first, again] = [(), ()].map(|()| {
        let scene =
            Scene { times: Times::Heavy, seconds: 10, ..Scene::named("pauses").expect("it is one of them") };
        Compared::of(&scene, &[OURS, FORMER], 7..8).to_string()
    });
    assert_eq!(first, again);
}
