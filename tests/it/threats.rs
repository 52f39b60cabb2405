//! The page on threats names a test for each defence: each of them must exist.

use std::path::{Path, PathBuf};
use std::{env, fs};

const PAGE: &str = include_str!("../../crates/sluicegate/docs/threats.md");

/// All Rust sources below a folder, in one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() && !path.ends_with("target") {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(path).expect("sources are text");
        }
    }
    text
}

#[test]
fn each_test_that_the_page_on_threats_names_exists() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let tests = ["crates", "tests"].map(|folder| sources(&root.join(folder))).concat();
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| T")).collect();
    assert_eq!(rows.len(), 32);
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for name in shown_by.split('`').skip(1).step_by(2) {
            assert!(tests.contains(&format!("fn {name}(")), "there is no test {name}: {row}");
        }
    }
}
