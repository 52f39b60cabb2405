//! The pages as a reader sees them: each block of code is pasted into a fresh crate, and compiles there.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sluicegate::rules::{RulesFile, Variables};
use sluicegate_tests::process::cargo;

use crate::files;

/// The pages, from the root of the repository.
const PAGES: [&str; 13] = include!("pages.in");

/// The packages that the pages tell a reader to add, with the features that they name.
const MANIFEST: &str = r#"[package]
name = "pasted"
version = "0.0.0"
edition = "2024"

[dependencies]
axum = "0.8"
metrics-exporter-prometheus = { version = "0.18", default-features = false }
reqwest = { version = "0.13", default-features = false }
reqwest-middleware = { version = "0.5", default-features = false }
sluicegate = { path = "ROOT/crates/sluicegate", features = ["deferred", "in-flight", "overflow", "redis", "reqwest", "rules", "secrets", "status"] }
tokio = { version = "1", features = ["macros", "net", "rt-multi-thread", "test-util"] }
tower = { version = "0.5", features = ["util"] }
tower-http = { version = "0.6", default-features = false, features = ["cors"] }
tracing = { version = "0.1", default-features = false }

[workspace]
"#;

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

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder is made");
    // A file that stays as it was is not compiled again.
    if fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return;
    }
    fs::write(path, text).expect("the file is written");
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

#[test]
fn every_block_compiles_when_it_is_pasted_into_a_fresh_crate() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pasted");
    // Blocks of a former run, of a page that has fewer now.
    fs::remove_dir_all(folder.join("src")).ok();
    let mut modules = String::new();
    for page in PAGES {
        let name = Path::new(page).file_stem().and_then(|stem| stem.to_str()).expect("pages have names");
        for (first, block) in blocks(page) {
            let name = format!("{}_{first}", name.to_lowercase());
            if block.contains("fn main()") {
                write(folder.join(format!("src/bin/{name}.rs")), &block);
            } else {
                write(folder.join(format!("src/{name}.rs")), &block);
                writeln!(modules, "mod {name};").expect("text takes text");
            }
        }
    }
    write(folder.join("src/lib.rs"), &format!("#![allow(dead_code)]\n{modules}"));
    let root = root().canonicalize().expect("it is there");
    write(folder.join("Cargo.toml"), &MANIFEST.replace("ROOT", &root.display().to_string()));
    // The versions that everything else is tested with, so that nothing has to be looked up.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the lock file is there");
    // In the folder of the others, which has built most of it.
    let output = cargo()
        .args(["check", "--offline", "--all-targets"])
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join(".."))
        .current_dir(&folder)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
