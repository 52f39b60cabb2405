//! Makes a module of each block of code on the pages, so that tests run what a reader pastes: `cookbook::logins` is the code under
//! "Logins" of the cookbook with all of its items public, `waiting::at_most_n_at_once_2` the second block under "At most N at once".
//! The documentation of the attribute becomes a page that doctests read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The pages, from the root of the repository.
const PAGES: [&str; 13] = include!("it/pages.in");

/// The places that the programs name, and those of the test that runs them.
const PLACES: [(&str, &str); 3] = [
    (r#""127.0.0.1:3000""#, "crate::recipes::ADDRESS.get()"),
    (r#""redis://127.0.0.1:6379""#, "crate::recipes::REDIS.get()"),
    (r#""rules.yaml""#, "crate::recipes::RULES.get()"),
];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo says where"));
    let mut modules = String::new();
    for page in PAGES {
        let path = root.join(page);
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).expect("the page is there");
        let stem = path.file_stem().expect("pages have names");
        // The README of a crate is called after its folder.
        let folder = Path::new(page).parent().and_then(Path::file_name).filter(|_| stem == "README");
        let name = folder.unwrap_or(stem).to_string_lossy().to_lowercase().replace('-', "_");
        let page = recipes(&text);
        fs::write(out.join(format!("{name}.rs")), &page).expect("the file is written");
        writeln!(modules, "pub(crate) mod {name} {{\n{page}}}").expect("text takes text");
    }
    fs::write(out.join("recipes.rs"), modules).expect("the file is written");
    let attribute = root.join("crates/sluicegate-macros/src/lib.rs");
    println!("cargo::rerun-if-changed={}", attribute.display());
    let code = fs::read_to_string(attribute).expect("the crate is there");
    fs::write(out.join("attribute.md"), prose(&code)).expect("the file is written");
}

/// The documentation in a file of code, as Markdown.
fn prose(code: &str) -> String {
    let lines = code.lines().filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
    lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

/// The modules of a page, by the headings that its blocks stand under.
fn recipes(page: &str) -> String {
    let (mut modules, mut heading, mut number) = (String::new(), "opening".to_owned(), 0);
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("# ").or_else(|| line.strip_prefix("## ")) {
            let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            (heading, number) = (words.map(str::to_lowercase).collect::<Vec<_>>().join("_"), 0);
        } else if line.starts_with("```rust") {
            number += 1;
            let name = if number == 1 { heading.clone() } else { format!("{heading}_{number}") };
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            // The doctests run the other programs.
            let is_run_by_rustdoc = !line.contains("no_run");
            writeln!(modules, "pub(crate) mod {name} {{\n{}}}", public(&block, is_run_by_rustdoc))
                .expect("text takes text");
        } else if line.starts_with("```") {
            lines.by_ref().find(|line| *line == "```");
        }
    }
    modules
}

/// The block with all functions, structs and fields public, and with the places of its test.
fn public(block: &[&str], is_run_by_rustdoc: bool) -> String {
    let (mut text, mut is_struct) = (String::new(), false);
    for line in block {
        let begins = line.starts_with("struct ");
        let line = match () {
            () if line.contains("fn main()") && is_run_by_rustdoc => {
                format!("#[allow(dead_code, reason = \"rustdoc runs it\")]\n{line}")
            }
            () if line.starts_with("fn ") || line.starts_with("async fn ") => format!("pub(crate) {line}"),
            () if begins && line.ends_with(");") => {
                format!("pub(crate) {}", line.replacen('(', "(pub(crate) ", 1))
            }
            () if begins => {
                format!("pub(crate) {}", line.replace("{ ", "{ pub(crate) ").replace(", ", ", pub(crate) "))
            }
            () if is_struct && line.contains(": ") && !line.contains("//") => {
                format!("    pub(crate) {}", line.trim_start())
            }
            () => PLACES.iter().fold((*line).to_owned(), |line, (place, ours)| line.replace(place, ours)),
        };
        is_struct = (begins || is_struct) && !line.ends_with(['}', ';']);
        text += &(line + "\n");
    }
    text
}
