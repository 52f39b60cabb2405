//! The files of `examples/serve` that run the server.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use sluicegate::rules::{RulesFile, Variables};

use crate::serve::processes::program;

fn text(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/serve");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

#[test]
fn the_rules_in_the_kubernetes_manifest_are_good() {
    let manifest = text("kubernetes.yaml");
    let (_, rules) = manifest.split_once("  rules.yaml: |\n").unwrap();
    let rules: Vec<&str> = rules.lines().map_while(|line| line.strip_prefix("    ")).collect();
    let file = RulesFile::parse("rules.yaml", &rules.join("\n"), &Variables::none().or_placeholders());
    assert_eq!(file.unwrap_or_else(|error| panic!("{error}")).store_kind(), Some("redis"));
}

#[test]
fn the_command_knows_each_option_and_variable_in_the_files() {
    let help = Command::new(program()).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for file in ["Containerfile", "sluicegate.service", "kubernetes.yaml"] {
        let text = text(file);
        let is_part = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
        let words: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with("RUN ") && !line.starts_with("COPY "))
            .flat_map(|line| line.split(is_part))
            .filter(|word| word.starts_with("SLUICEGATE_") || word.starts_with("--") && word.len() > 3)
            .collect();
        assert!(!words.is_empty(), "{file}");
        for word in words {
            assert!(help.contains(word), "{file}: {word}");
        }
    }
}
