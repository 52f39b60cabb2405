//! Makes a module of each recipe of the pages, so that tests call what a reader pastes: `cookbook::logins` is the code under
//! "Logins" of the cookbook, with all of its items public.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

const PAGES: [&str; 3] = ["cookbook", "getting_started", "tiers"];

/// A recipe has one of these functions.
const FUNCTIONS: [&str; 4] = ["fn layer(", "fn router(", "async fn deliver(", "async fn answer("];

fn main() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/sluicegate/docs");
    let mut modules = String::new();
    for page in PAGES {
        let path = docs.join(page).with_extension("md");
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(path).expect("the page is there");
        writeln!(modules, "pub(crate) mod {page} {{").expect("text takes text");
        for (heading, block) in recipes(&text) {
            writeln!(modules, "pub(crate) mod {heading} {{\n{block}}}").expect("text takes text");
        }
        modules += "}\n";
    }
    let out = env::var("OUT_DIR").expect("cargo says where");
    fs::write(Path::new(&out).join("recipes.rs"), modules).expect("the file is written");
}

/// The blocks that are recipes, by the heading that they stand under: its words, and those of the first block of several.
fn recipes(page: &str) -> Vec<(String, String)> {
    let (mut found, mut heading, mut lines) = (Vec::new(), String::new(), page.lines());
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("# ") {
            let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            heading = words.map(str::to_lowercase).collect::<Vec<_>>().join("_");
        } else if line.starts_with("```rust") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let is_recipe = block.iter().any(|line| FUNCTIONS.iter().any(|start| line.starts_with(start)));
            if is_recipe && !found.iter().any(|(other, _)| *other == heading) {
                found.push((heading.clone(), public(&block)));
            }
        }
    }
    found
}

/// The block with all functions, structs and fields public.
fn public(block: &[&str]) -> String {
    let (mut text, mut is_struct) = (String::new(), false);
    for line in block {
        let begins = line.starts_with("struct ");
        let line = match () {
            () if line.starts_with("fn ") || line.starts_with("async fn ") => format!("pub(crate) {line}"),
            () if begins && line.ends_with(");") => {
                format!("pub(crate) {}", line.replacen('(', "(pub(crate) ", 1))
            }
            () if begins => {
                format!("pub(crate) {}", line.replace("{ ", "{ pub(crate) ").replace(", ", ", pub(crate) "))
            }
            () if is_struct && line.contains(": ") => format!("    pub(crate) {}", line.trim_start()),
            () => (*line).to_owned(),
        };
        is_struct = (begins || is_struct) && !line.ends_with(['}', ';']);
        text += &(line + "\n");
    }
    text
}
