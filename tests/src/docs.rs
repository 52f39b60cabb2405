//! What rustdoc knows of our crates, as JSON, and the pages that it makes of them.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::process::cargo;

/// All crates that a program may call; of the attribute's there is one item.
pub const CRATES: [&str; 15] = [
    "sluicegate",
    "sluicegate_axum",
    "sluicegate_core",
    "sluicegate_fleet",
    "sluicegate_in_flight",
    "sluicegate_macros",
    "sluicegate_observed",
    "sluicegate_overflow",
    "sluicegate_redis",
    "sluicegate_replay",
    "sluicegate_resilient",
    "sluicegate_rules",
    "sluicegate_server",
    "sluicegate_status",
    "sluicegate_tower",
];

/// A crate as rustdoc knows it, in JSON. The crates that are published are documented once for all tests of a program.
///
/// # Panics
/// When one of them cannot be documented, or there is no such crate.
pub fn json_of(name: &str) -> String {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(write_json);
    fs::read_to_string(FOLDER.join(format!("{name}.json"))).expect("rustdoc has written it")
}

fn write_json() -> PathBuf {
    let target = target();
    // A stable rustdoc writes JSON if it is let.
    let script = target.join("rustdoc-json");
    fs::create_dir_all(&target).expect("the folder is made");
    fs::write(&script, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n").expect("the script is written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is made a program");
    let not_published = ["sluicegate-tests*", "sluicegate-examples", "sluicegate-simulator"];
    let mut command = document();
    command.args(not_published.iter().flat_map(|package| ["--exclude", package]));
    run(command.env("RUSTDOC", script).env("RUSTDOCFLAGS", "-Z unstable-options --output-format json"));
    target.join("doc")
}

/// Documents all crates as `./tests/run docs` does, so that nothing is built twice, and returns the folder of the pages.
///
/// # Panics
/// When one of them cannot be documented without a warning.
pub fn as_html() -> PathBuf {
    run(document().env("RUSTDOCFLAGS", "-D warnings"));
    target().join("doc")
}

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().expect("it is there")
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}

fn document() -> Command {
    let mut command = cargo();
    command.args(["doc", "-q", "--workspace", "--no-deps", "--all-features"]).current_dir(root());
    command
}

fn run(command: &mut Command) {
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
