//! Pages lead somewhere: the links that rustdoc does not see.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files;

/// A file of ours, as a page names it that is shown elsewhere, too.
const HERE: &str = "https://github.com/sluicegate/sluicegate/blob/main/";

/// A page of rustdoc, as it is linked to from everywhere: the crate, `latest`, and its path below `target/doc`.
const DOCS: &str = "https://docs.rs/sluicegate";

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
    // A name in brackets is a link, if the page says where to.
    for (at, _) in text.match_indices("[`") {
        let Some((name, rest)) = text[at + 2..].split_once("`]") else { continue };
        let is_alone = !text[..at].ends_with(']') && !rest.starts_with(['(', '[', ':']);
        let is_known = names.contains(&format!("`{}`", name.to_lowercase()));
        wrong.extend((is_alone && !is_known).then(|| format!("the link {name:?} is nowhere on the page")));
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
        ("[`Store`], [`Key::of`][`Key`]\n\n[`Store`]: crates\n[`Key`]: crates", 0),
        ("[`Store`]", 1),
        ("[`Key::of`][`Key`]", 1),
        ("```\n[one](REDME.md)\n```\n", 0),
    ] {
        assert_eq!(dead_ends(&root, &root, text).len(), wrong, "{text}");
    }
}

/// What is wrong with a link to a page of rustdoc.
fn dead_end_of_rustdoc(built: &Path, address: &str) -> Option<String> {
    let (_, path) = address.strip_prefix(DOCS)?.split_once("/latest/")?;
    let (page, anchor) = path.split_once('#').map_or((path, None), |(page, anchor)| (page, Some(anchor)));
    let text = fs::read_to_string(built.join(page));
    let is_there = text.is_ok_and(|text| anchor.is_none_or(|id| text.contains(&format!("id=\"{id}\""))));
    (!is_there).then(|| format!("rustdoc has no page for {address:?}"))
}

/// The definitions of links to items: what is in brackets, and where it leads.
fn items(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| line.starts_with("[`")).filter_map(|line| line.split_once("]: "))
}

#[test]
fn every_item_that_a_page_links_to_has_a_page_of_rustdoc_and_a_path() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let built = sluicegate_tests::docs::as_html();
    let paths = fs::read_to_string(root.join("crates/sluicegate/docs/items.txt")).expect("it is there");
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for page in files::below(&root, "md") {
        let text = fs::read_to_string(&page).expect("pages are text");
        let name = page.display();
        let addresses = text.split(['(', ')', ' ', '\n']).filter(|word| word.starts_with(DOCS));
        wrong.extend(addresses.filter_map(|address| dead_end_of_rustdoc(&built, address)));
        for (item, address) in items(&text) {
            // The same item: `struct.Key.html` of a module, and `crate::module::Key`.
            let path = items(&paths).find(|(of, _)| *of == item).map(|(_, path)| path.replace("::", "/"));
            let (folder, page) = address.rsplit_once('/').expect("an address has parts");
            let linked = page.split('.').nth(1).map(|item| format!("{folder}/{item}"));
            let is_same = path.is_some_and(|path| {
                linked == Some(path.replacen("crate", "https://docs.rs/sluicegate/latest/sluicegate", 1))
            });
            wrong.extend((!is_same).then(|| format!("{name}: items.txt does not lead where {item}] does")));
            used.insert(item.to_owned());
        }
    }
    let unused = items(&paths).filter(|(item, _)| !used.contains(*item));
    wrong.extend(unused.map(|(item, _)| format!("no page links to {item}]")));
    assert!(used.len() > 40 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_page_that_rustdoc_does_not_make_is_found() {
    let built = sluicegate_tests::docs::as_html();
    for (address, is_dead) in [
        ("https://docs.rs/sluicegate/latest/sluicegate/struct.Policy.html", false),
        ("https://docs.rs/sluicegate/latest/sluicegate/struct.Policy.html#method.gcra", false),
        ("https://docs.rs/sluicegate/latest/sluicegate/struct.Police.html", true),
        ("https://docs.rs/sluicegate/latest/sluicegate/struct.Policy.html#method.gcar", true),
    ] {
        assert_eq!(dead_end_of_rustdoc(&built, address).is_some(), is_dead, "{address}");
    }
}
