//! The page on threats names a test for each defence, and that on fleets one for each bound: each of them must exist.

use std::path::PathBuf;
use std::{env, fs};

use crate::files;

const THREATS: &str = include_str!("../../crates/sluicegate/docs/threats.md");
const FLEET: &str = include_str!("../fleet/README.md");

/// All sources of ours as one text.
fn sources() -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = ["crates", "tests"].map(|folder| files::below(&root.join(folder), "rs")).concat();
    sources.iter().map(|path| fs::read_to_string(path).expect("sources are text")).collect()
}

/// Looks for each test that this text names; how many those are.
fn named(text: &str, sources: &str) -> usize {
    let names = || text.split('`').skip(1).step_by(2);
    for name in names() {
        assert!(sources.contains(&format!("fn {name}(")), "there is no test {name}");
    }
    names().count()
}

#[test]
fn each_test_that_the_page_on_threats_names_exists() {
    let sources = sources();
    let entries: Vec<&str> = THREATS.split("\n- **T").skip(1).collect();
    // The number of the one that is missing was a factor that is gone.
    assert_eq!(entries.len(), 45);
    for entry in entries {
        let entry = entry.split("\n\n").next().unwrap_or_default();
        let count = entry.split_once("Shown by ").map_or(0, |(_, tests)| named(tests, &sources));
        // Of one no test can tell.
        assert!(count > 0 || entry.starts_with("25,"), "{entry}");
    }
}

#[test]
fn each_bound_on_the_page_on_fleets_has_a_test() {
    let sources = sources();
    let (_, rest) = FLEET.split_once("| together |").expect("the table of tests is there");
    let rows: Vec<&str> = rest.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').skip(1).collect();
        assert!(cells.len() == 5 && cells.iter().all(|cell| named(cell, &sources) > 0), "{row}");
    }
}
