//! What the manifests promise.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--all-features"])
        // Of other platforms' dependencies, the manifests may not even be here.
        .args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// `1.89` or `1.89.0` as numbers.
fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split('.').map(|part| part.parse().expect("a version consists of numbers"));
    (parts.next().expect("a major version"), parts.next().unwrap_or(0))
}

/// Development dependencies do not count: who uses a crate does not build them.
fn used_packages(metadata: &Value) -> BTreeSet<&str> {
    let nodes = metadata["resolve"]["nodes"].as_array().expect("there are nodes");
    let published = |id: &str| {
        let packages = metadata["packages"].as_array().expect("there are packages");
        let package = packages.iter().find(|package| package["id"] == id).expect("every node is a package");
        package["publish"].is_null()
    };
    let members = metadata["workspace_members"].as_array().expect("there are members");
    let mut todo: Vec<&str> = members.iter().filter_map(Value::as_str).filter(|id| published(id)).collect();
    let mut used = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if used.insert(id) {
            let node = nodes.iter().find(|node| node["id"] == id).expect("every package has a node");
            let normal =
                node["deps"].as_array().expect("a node has dependencies").iter().filter(|dependency| {
                    let kinds = dependency["dep_kinds"].as_array().expect("a dependency has kinds");
                    kinds.iter().any(|kind| kind["kind"].is_null())
                });
            todo.extend(normal.filter_map(|dependency| dependency["pkg"].as_str()));
        }
    }
    used
}

#[test]
fn no_dependency_needs_a_newer_rust_than_we_declare() {
    let metadata = metadata();
    let used = used_packages(&metadata);
    assert!(used.len() > 20, "the walk found only {} packages", used.len());
    let packages = metadata["packages"].as_array().expect("there are packages");
    let ours = packages.iter().find(|package| package["name"] == "sluicegate-core").expect("it is ours");
    let declared = version(ours["rust_version"].as_str().expect("we declare one"));
    let newer: Vec<String> = packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id)))
        .filter(|package| package["rust_version"].as_str().is_some_and(|needed| version(needed) > declared))
        .map(|package| format!("{} needs {}", package["name"], package["rust_version"]))
        .collect();
    assert!(newer.is_empty(), "{newer:?}");
}

/// Extension authors need only the core, so it must stay light.
#[test]
fn the_core_has_no_runtime_and_no_http_in_its_tree() {
    let tree = tree(&["-p", "sluicegate-core", "--no-default-features"]);
    for other in ["tokio", "http", "hyper", "syn", "axum", "redis"] {
        assert!(!tree.contains(other), "{tree:?}");
    }
}

/// Whoever adds a limit to a service waits for all of it to compile.
#[test]
fn an_application_that_asks_for_nothing_more_builds_no_rare_part() {
    let tree = tree(&["-p", "sluicegate"]);
    assert!(tree.contains("sluicegate-axum"), "{tree:?}");
    for rare in ["sluicegate-in-flight", "blake3", "jiff", "jsonwebtoken", "redis", "regex"] {
        assert!(!tree.contains(rare), "{tree:?}");
    }
}

/// The packages that are built with a package.
fn tree(of: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .arg("tree")
        .args(of)
        .args(["-e", "normal", "--prefix", "none"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("names are text");
    tree.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

/// Where the manifest names the tests, one that it forgets is not built, and nobody misses it.
#[test]
fn every_folder_of_tests_is_a_target() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("there are packages");
    let ours = || packages.iter().filter(|package| package["source"].is_null());
    let targets = ours().flat_map(|package| package["targets"].as_array().expect("a package has targets"));
    let targets: BTreeSet<&str> = targets.filter_map(|target| target["src_path"].as_str()).collect();
    let (mut found, mut forgotten) = (0, Vec::new());
    for package in ours() {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a package has a manifest"));
        let root = manifest.parent().expect("a manifest is in a folder");
        // Our crates have them in `tests/`, and the package of all tests is that folder itself.
        for folder in [root.join("tests"), root.to_owned()] {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let main = entry.expect("a folder can be read").path().join("main.rs");
                if !main.is_file() || main.parent() == Some(&root.join("src")) {
                    continue;
                }
                found += 1;
                if !main.to_str().is_some_and(|main| targets.contains(main)) {
                    forgotten.push(main);
                }
            }
        }
    }
    assert!(found > 15, "{found} folders of tests were found");
    assert!(forgotten.is_empty(), "not named in their Cargo.toml: {forgotten:?}");
}
