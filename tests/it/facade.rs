//! The names that the facade offers, counted: one more of them is a decision.

use std::collections::BTreeMap;
use std::fs;

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");

/// How many names an application finds at the root, and in each module.
const NAMES: [(&str, usize); 29] = [
    ("(root)", 24),
    ("algorithm", 24),
    ("attribute", 2),
    ("bandwidth", 4),
    ("calendar", 1),
    ("call", 6),
    ("clock", 5),
    ("error", 6),
    ("fleet", 8),
    ("guard", 11),
    ("in_flight", 26),
    ("key", 29),
    ("limiter", 18),
    ("limits", 30),
    ("memory", 3),
    ("observed", 24),
    ("outgoing", 4),
    ("overflow", 11),
    ("policy", 17),
    ("rate_limit", 8),
    ("redis", 6),
    ("request_fields", 7),
    ("resilient", 6),
    ("respond", 10),
    ("rules", 18),
    ("settle", 6),
    ("status", 2),
    ("store", 31),
    ("suspension", 2),
];

/// The text of a module that the facade takes over whole from one of our crates.
fn module_of_a_crate(name: &str) -> Option<String> {
    let files = [
        format!("core/src/{name}/mod.rs"),
        format!("core/src/{name}.rs"),
        format!("tower/src/{name}/mod.rs"),
        format!("tower/src/{name}.rs"),
        format!("{name}/src/lib.rs"),
    ];
    files.iter().find_map(|file| fs::read_to_string(format!("{CRATES}/sluicegate-{file}")).ok())
}

/// The names after `pub use`, and those of public items, outside of inner modules and blocks.
fn public_names(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut names = Vec::new();
    for statement in code.join("\n").split("\npub use ").skip(1) {
        let path = statement.split(';').next().expect("a text has a first part");
        let path = path.rsplit(" as ").next().expect("a text has a last part");
        let last = path.rsplit("::").next().expect("a text has a last part");
        let list = path.split_once('{').map_or(last, |(_, list)| list.trim_end_matches(['}', '\n']));
        names.extend(list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
    }
    for line in code {
        let mut words = line.split([' ', '<', '(', ':', ';']);
        let item = ["struct", "enum", "trait", "fn", "const", "type"];
        if words.next() == Some("pub") && words.next().is_some_and(|word| item.contains(&word)) {
            names.extend(words.next().map(str::to_owned));
        }
    }
    names
}

#[test]
fn the_root_has_24_names_and_each_module_those_that_were_decided_on() {
    let facade = fs::read_to_string(format!("{CRATES}/sluicegate/src/lib.rs")).expect("it is there");
    let mut counts = BTreeMap::new();
    let mut root = String::new();
    let mut rest = facade.as_str();
    while let Some((before, module)) = rest.split_once("\npub mod ") {
        let (name, text) = module.split_once(" {\n").expect("the facade's modules are written out");
        let (text, after) = text.split_once("\n}").expect("a module ends");
        root += before;
        rest = after;
        if name != "docs" {
            counts.insert(
                name.to_owned(),
                public_names(&format!("\n{}", text.replace("\n    ", "\n").trim_start())),
            );
        }
    }
    root += rest;
    let (modules, names): (Vec<_>, Vec<_>) = public_names(&root)
        .into_iter()
        .filter(|name| name != "__private")
        .partition(|name| module_of_a_crate(name).is_some());
    for name in modules {
        let text = module_of_a_crate(&name).expect("it was found");
        counts.insert(name, public_names(&text));
    }
    counts.insert("(root)".to_owned(), names);
    let found: Vec<(&str, usize)> = counts.iter().map(|(module, names)| (&**module, names.len())).collect();
    assert_eq!(found, NAMES, "{counts:#?}");
}
