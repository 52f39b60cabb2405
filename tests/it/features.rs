//! Features only add: no code does something else because of one, but in the places that say why.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::files;

/// Where a feature decides what code does, how often, and why that is no surprise to anybody who does not want the feature.
const ALLOWED: &[(&str, usize, &str)] = &[
    ("core/src/calendar.rs", 1, "a quota that needs it is refused, and the error names it"),
    ("core/src/limiter/handle.rs", 1, "a line in the log more"),
    ("core/src/limiter/open.rs", 4, "a line in the log more"),
    ("core/src/wrap/outage.rs", 1, "a line in the log more"),
    (
        "core/src/suspension/ask.rs",
        1,
        "without tokio there is no runtime that could finish what nobody waits for",
    ),
    ("core/src/suspension/strike.rs", 1, "a line in the log more"),
    ("core/src/store/permits.rs", 1, "without tokio there is no runtime on which permits could be reported"),
    ("overflow/src/layer/gate.rs", 1, "what is told to a recorder"),
    ("redis/src/connection/server/url.rs", 1, "a URL that needs it is refused, and the error names it"),
    ("redis/src/connection/server/tls.rs", 4, "with a certificate, which cannot be set without it"),
    (
        "rules/src/compile/store.rs",
        2,
        "a program without Redis says so, and has neither one nor leases to give back",
    ),
    ("rules/src/reload.rs", 2, "what is told to a recorder"),
    ("tower/src/key/extraction.rs", 3, "the path and the route as axum leaves them"),
    ("tower/src/key/ip/peer.rs", 2, "the peer's address as axum leaves it, where there is no other"),
];

/// Whether this line, below an attribute, begins something that is there or not: an item, a field, a variant or its arm.
fn is_added(line: &str) -> bool {
    let words = [
        "pub",
        "mod",
        "use",
        "fn",
        "async fn",
        "impl",
        "struct",
        "enum",
        "const",
        "static",
        "type",
        "macro_rules!",
    ];
    let is_item = words.iter().any(|word| line.strip_prefix(word).is_some_and(|rest| !rest.starts_with('_')));
    let is_arm = line.contains(" => ") || line.starts_with(char::is_uppercase);
    let is_field = line.split_once([':', '(', ',']).is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_') && line.ends_with(',')
    });
    is_item || is_arm || is_field
}

/// The lines of a file where a feature decides what code does.
fn behaviour(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let decides = |(index, line): (usize, &&str)| {
        let is_attribute = line.starts_with("#[cfg(") && line.contains("feature =");
        let under = lines[index..].iter().find(|line| !line.starts_with("#[") && !line.starts_with("//"));
        let other =
            is_attribute && (line.contains("not(feature") || !under.is_some_and(|line| is_added(line)));
        (other || line.contains("cfg!(feature")).then_some(index + 1)
    };
    lines.iter().enumerate().filter_map(decides).collect()
}

#[test]
fn no_feature_decides_what_code_does_but_where_it_is_allowed() {
    let crates = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates"));
    let is_library = |path: &PathBuf| {
        path.strip_prefix(&crates).is_ok_and(|path| path.iter().nth(1) == Some("src".as_ref()))
    };
    let files: Vec<_> = files::below(&crates, "rs").into_iter().filter(is_library).collect();
    assert!(files.len() > 100, "{} files", files.len());
    let mut found = BTreeMap::new();
    for file in files {
        let lines = behaviour(&fs::read_to_string(&file).expect("sources are text"));
        let name = file.strip_prefix(&crates).expect("it is below").display().to_string();
        if !lines.is_empty() {
            found.insert(name.trim_start_matches("sluicegate-").to_owned(), lines);
        }
    }
    let expected: BTreeMap<_, _> =
        ALLOWED.iter().map(|(file, times, _)| ((*file).to_owned(), *times)).collect();
    let times: BTreeMap<_, _> = found.iter().map(|(file, lines)| (file.clone(), lines.len())).collect();
    assert_eq!(times, expected, "in lines {found:?}");
}

#[test]
fn a_feature_that_decides_is_found_in_each_of_its_forms() {
    for (text, expected) in [
        ("#[cfg(feature = \"a\")]\npub use x::Y;", 0),
        ("#[cfg(feature = \"a\")]\n#[cfg_attr(docsrs, doc(x))]\nmod y;", 0),
        ("struct S {\n    #[cfg(feature = \"a\")]\n    y: Y,\n}", 0),
        ("#[cfg(feature = \"a\")]\nSelf::Y(y) => y.z(),", 0),
        ("#[cfg(feature = \"a\")]\nY {\n    z: Z,\n},", 0),
        ("#[cfg(feature = \"a\")]\nif let Some(y) = y {", 1),
        ("#[cfg(feature = \"a\")]\nreturn y;", 1),
        ("#[cfg(feature = \"a\")]\nlet y = 1;", 1),
        ("#[cfg(not(feature = \"a\"))]\nfn y() {}", 1),
        ("if cfg!(feature = \"a\") {", 1),
    ] {
        assert_eq!(behaviour(text).len(), expected, "{text}");
    }
}
