//! The pictures of the documentation are those that the command draws.

use std::io::Cursor;
use std::path::PathBuf;

use sluicegate_replay::ReplayOutcome;

use crate::support::{ACCESS_LOG, line, of_rules, run, try_run};

/// A picture as it was committed. `sluicegate replay --picture` draws it anew, with the files that the test names.
fn committed(name: &str) -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../sluicegate/docs")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn drawn(replay: &sluicegate_replay::Replay, name: &str, log: &'static [u8]) -> ReplayOutcome {
    replay.run([(name, Cursor::new(log))]).expect("the log can be read")
}

#[test]
fn the_picture_of_the_algorithms_is_a_replay_of_the_same_traffic_under_each() {
    let rules = of_rules(include_str!("../traffic.yaml"));
    let outcome = drawn(&rules, "traffic.log.gz", include_bytes!("../traffic.log.gz"));
    assert_eq!(outcome.to_svg(), committed("algorithms.svg"), "tests/traffic.yaml, tests/traffic.log.gz");
    let rejected: Vec<_> = outcome.rules.iter().map(|rule| rule.rejected).collect();
    assert!(
        rejected.iter().all(|count| *count > 100) && outcome.rules.iter().all(|rule| rule.asked == 1_247),
        "{rejected:?}"
    );
}

#[test]
fn the_picture_of_a_report_is_a_replay_of_the_real_log() {
    let rules = of_rules(include_str!("../rules.yaml")).compare().suggest("0.1%".parse().unwrap());
    let outcome = drawn(&rules, "access.log.gz", ACCESS_LOG);
    assert_eq!(
        outcome.to_svg(),
        committed("replay.svg"),
        "tests/rules.yaml, tests/access.log.gz, --compare --suggest 0.1%"
    );
}

#[test]
fn texts_stand_in_a_picture_as_text_and_it_loads_nothing() {
    let rules =
        "version: 1\npolicies: { p: { quota: 1/min } }\nrules: [{ name: r, limit: p, key: client }]\n";
    let replay = of_rules(rules);
    let log = line(0, "192.0.2.1", "/").repeat(3);
    let named = replay.run([("<script>alert(1)</script>\"", Cursor::new(log.clone()))]).unwrap();
    let picture = named.to_svg();
    assert!(!picture.contains("<script") && picture.contains("&lt;script&gt;alert(1)"), "{picture}");
    let outside = picture.replace("http://www.w3.org/2000/svg", "");
    assert!(!["http", "url(", "@import", "href"].iter().any(|word| outside.contains(word)), "{picture}");
    assert!(
        picture.contains("2 of 3 requests and 1 of 1 key rejected<")
            && picture.contains("prefers-color-scheme:dark")
    );
    // A log without requests is a picture without rules.
    assert!(
        try_run(&replay, "").unwrap().to_svg().starts_with("<svg")
            && !run(&replay, "").to_svg().contains("<path")
    );
}
