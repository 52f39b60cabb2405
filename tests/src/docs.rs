//! What rustdoc knows of our crates, as JSON.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Documents the crates that are published, and returns the folder with a file of JSON for each of them.
///
/// # Panics
/// When one of them cannot be documented.
pub fn as_json() -> PathBuf {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().expect("it is there");
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    // A stable rustdoc writes JSON if it is let.
    let script = target.join("rustdoc-json");
    fs::create_dir_all(&target).expect("the folder is made");
    fs::write(&script, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n").expect("the script is written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is made a program");
    let output = Command::new(env!("CARGO"))
        .args(["doc", "-q", "--workspace", "--no-deps", "--all-features"])
        .args([
            "--exclude",
            "sluicegate-tests*",
            "--exclude",
            "sluicegate-examples",
            "--exclude",
            "sluicegate-simulator",
        ])
        .env("RUSTDOC", script)
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json")
        .current_dir(&root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("doc")
}
