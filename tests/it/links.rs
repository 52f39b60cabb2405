//! Pages lead somewhere: what rustdoc does not see.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files;

/// A file of ours, as a page names it that is shown elsewhere, too.
const HERE: &str = "https://github.com/sluicegate/sluicegate/blob/main/";

/// The text outside of blocks of code.
fn prose(text: &str) -> String {
    format!("\n{text}").split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// What stands between these two, wherever it does on one line.
fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    let parts = text.lines().flat_map(move |line| line.split(open).skip(1));
    parts.filter_map(move |rest| rest.split_once(close).map(|(found, _)| found))
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// What is wrong with the links of a page, and with the files that it names.
fn dead_ends(root: &Path, folder: &Path, text: &str) -> Vec<String> {
    let text = prose(text);
    let anchors: BTreeSet<_> = text.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    let defined = text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("]: "));
    let (names, targets): (BTreeSet<_>, Vec<_>) =
        defined.map(|(name, target)| (name[1..].to_lowercase(), target)).unzip();
    let mut wrong = Vec::new();
    for target in between(&text, "](", ')').chain(targets) {
        let leads = match target.split_once('#') {
            Some(("", anchor)) => anchors.contains(anchor),
            _ if target.starts_with(HERE) => {
                root.join(target[HERE.len()..].split('#').next().unwrap_or_default()).exists()
            }
            _ => target.contains("://") || folder.join(target.split('#').next().unwrap_or_default()).exists(),
        };
        wrong.extend((!leads).then(|| format!("the link {target:?} leads nowhere")));
    }
    for name in between(&text, "][", ']').filter(|name| !names.contains(&name.to_lowercase())) {
        wrong.push(format!("the link {name:?} is nowhere on the page"));
    }
    for path in text.split('`').skip(1).step_by(2) {
        let is_ours = ["crates/", "tests/", "examples/"].iter().any(|start| path.starts_with(start));
        let is_path = is_ours && !path.contains([' ', '*', '<']);
        wrong.extend((is_path && !root.join(path).exists()).then(|| format!("there is no file {path:?}")));
    }
    wrong
}

#[test]
fn every_link_and_every_file_that_a_page_names_is_there() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let found = files::below(&root, "md");
    assert!(found.len() > 10, "{found:?}");
    for page in found {
        let text = fs::read_to_string(&page).expect("pages are text");
        let wrong = dead_ends(&root, page.parent().expect("a page is in a folder"), &text);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", page.display());
    }
}

#[test]
fn a_dead_link_is_found_in_each_of_its_forms() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for (text, wrong) in [
        ("# A page\n[one](README.md), [two](#a-page), [three][3], `tests/run`\n\n[3]: crates", 0),
        ("[one](https://github.com/sluicegate/sluicegate/blob/main/README.md)", 0),
        ("[one](https://github.com/sluicegate/sluicegate/blob/main/REDME.md)", 1),
        ("[one](REDME.md)", 1),
        ("# A page\n[two](#another-page)", 1),
        ("[three][3]", 1),
        ("[three][3]\n\n[3]: crate", 1),
        ("see `tests/walk`", 1),
        ("```\n[one](REDME.md)\n```\n", 0),
    ] {
        assert_eq!(dead_ends(&root, &root, text).len(), wrong, "{text}");
    }
}
