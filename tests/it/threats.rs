//! The page on threats names a test for each defence: each of them must exist.

use std::path::PathBuf;
use std::{env, fs};

use crate::files;

const PAGE: &str = include_str!("../../crates/sluicegate/docs/threats.md");

#[test]
fn each_test_that_the_page_on_threats_names_exists() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = ["crates", "tests"].map(|folder| files::below(&root.join(folder), "rs")).concat();
    let tests: String =
        sources.iter().map(|path| fs::read_to_string(path).expect("sources are text")).collect();
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| T")).collect();
    assert_eq!(rows.len(), 32);
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for name in shown_by.split('`').skip(1).step_by(2) {
            assert!(tests.contains(&format!("fn {name}(")), "there is no test {name}: {row}");
        }
    }
}
