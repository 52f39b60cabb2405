//! The pages as a reader sees them. Each block of code is a module of `recipes`, and compiles there.

use std::fs;
use std::path::{Path, PathBuf};

use sluicegate::rules::{RulesFile, Variables};

use crate::files;

/// The pages, from the root of the repository.
const PAGES: [&str; 13] = include!("pages.in");

/// The packages that the pages tell a reader to add.
const PACKAGES: [&str; 9] = [
    "axum",
    "metrics_exporter_prometheus",
    "reqwest",
    "reqwest_middleware",
    "sluicegate",
    "tokio",
    "tower",
    "tower_http",
    "tracing",
];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The blocks of Rust code on a page, as they are rendered, each with the number of its first line.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let blocks = blocks_of("```rust", &root().join(page));
    assert!(!blocks.is_empty(), "{page} has no code");
    blocks
}

/// The blocks of a page that begin so.
fn blocks_of(fence: &str, page: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(page).expect("the page is there");
    let (mut blocks, mut block) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        block = match block.take() {
            None if line.starts_with(fence) => Some((number + 2, String::new())),
            None => None,
            Some(whole) if line.starts_with("```") => {
                blocks.push(whole);
                None
            }
            Some((first, text)) => Some((first, text + line + "\n")),
        };
    }
    blocks
}

#[test]
fn no_page_with_code_is_left_out() {
    let with_code =
        files::below(&root(), "md").into_iter().filter(|page| !blocks_of("```rust", page).is_empty());
    let with_code: Vec<_> =
        with_code.map(|page| page.strip_prefix(root()).expect("it is below").to_owned()).collect();
    let left_out: Vec<_> =
        with_code.iter().filter(|page| !PAGES.iter().any(|of| page.ends_with(of))).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn every_rules_file_on_a_page_can_be_put_in_force() {
    let mut read = 0;
    for page in files::below(&root(), "md") {
        let files =
            blocks_of("```yaml", &page).into_iter().filter(|(_, text)| text.starts_with("version: 1"));
        for (first, text) in files {
            let name = format!("{}:{first}", page.display());
            let variables = Variables::none().or_placeholders();
            let file =
                RulesFile::parse(&name, &text, &variables).unwrap_or_else(|mistakes| panic!("{mistakes}"));
            // Such as a key that clients make up, without a limit on the address beside it.
            let mut warnings = file.warnings().iter().map(ToString::to_string);
            assert_eq!(warnings.find(|warning| !warning.contains("the environment variable")), None);
            read += 1;
        }
    }
    assert!(read > 4, "only {read} were found");
}

#[test]
fn no_block_has_a_line_that_only_rustdoc_hides() {
    for page in PAGES {
        for (first, block) in blocks(page) {
            let shown = block.lines().position(|line| line == "#" || line.starts_with("# "));
            assert_eq!(shown, None, "{page}:{first}: a reader who pastes this gets the line, too");
        }
    }
}

#[test]
fn the_program_on_the_first_screen_of_the_readme_has_ten_lines_or_so() {
    let (first, program) = blocks("README.md").swap_remove(0);
    assert!(first < 45, "it begins in line {first}, below the first screen");
    assert!(program.lines().count() <= 12, "{program}");
    assert!(program.contains("fn main"), "it is no program:\n{program}");
}

/// All blocks are compiled as modules of `recipes`, where more packages are at hand than a reader adds.
#[test]
fn every_block_uses_only_packages_that_a_reader_is_told_to_add() {
    for page in PAGES {
        for (first, block) in blocks(page) {
            let imports = block.lines().filter_map(|line| line.trim_start().strip_prefix("use "));
            let mut packages = imports.filter_map(|path| path.split("::").next());
            let known = ["std", "super"].into_iter().chain(PACKAGES);
            let other = packages.find(|package| !known.clone().any(|known| known == *package));
            assert_eq!(other, None, "{page}:{first}");
        }
    }
}
