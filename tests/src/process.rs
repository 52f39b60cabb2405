//! Tests that need a process of their own: the test binary started again for one of its tests.

use std::any::type_name_of_val;
use std::ffi::OsStr;
use std::process::{Child, Command, Output, Stdio};

/// Set in a process that was started for one test.
const CHILD: &str = "SLUICEGATE_ALONE";

/// Runs one test of this binary in a process that runs nothing else, with these variables in its environment.
///
/// # Panics
/// When the test is not there or fails.
pub fn run_again<'a>(test: &str, environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>) {
    let this = std::env::current_exe().expect("a test knows where it is");
    let child = Command::new(this).args([test, "--exact", "--nocapture"]).envs(environment).output();
    expect_passed(&child.expect("the test binary can be started again"));
}

/// Cargo, without what it has told this test of its package: the build script of ring would run again for it, and all above be built again.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let told = std::env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| {
        name.to_string_lossy().starts_with("CARGO_PKG_")
            || name.to_string_lossy().starts_with("CARGO_MANIFEST_")
    }) {
        command.env_remove(name);
    }
    command
}

fn expect_passed(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Begins one test of this binary in a process that runs nothing else, with these variables in its environment. It is told that
/// this process has gone by the end of its standard input.
///
/// # Panics
/// When it cannot be started.
pub fn begin_again<'a>(test: &str, environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Child {
    let this = std::env::current_exe().expect("a test knows where it is");
    let mut command = Command::new(this);
    command.args([test, "--exact", "--nocapture"]).env(CHILD, "1").envs(environment);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    child.expect("the test binary can be started again")
}

/// Whether this process was started for one test.
#[must_use]
pub fn is_alone() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the work of a test in a process that runs nothing else. It has to be a closure that stands in the test itself,
/// since its type names the test.
///
/// # Panics
/// When the work does.
pub fn alone<F: FnOnce()>(work: F) {
    if is_alone() {
        return work();
    }
    run_again(test_of(&work), [(CHILD, OsStr::new("1"))]);
}

/// Runs the work of a test as somebody who is not root, who may read every file: in a process of its own if this one is root's. As
/// with [`alone`], it has to be a closure that stands in the test itself.
///
/// # Panics
/// When the work does, and where processes cannot be given away.
#[cfg(unix)]
pub fn without_root<F: FnOnce()>(work: F) {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;

    /// Whom the files belong to that belong to nobody.
    const NOBODY: u32 = 65_534;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root || is_alone() {
        return work();
    }
    // Nobody may look into the folder of this binary, perhaps.
    let copy = std::env::temp_dir().join(format!("sluicegate-nobody-{}", std::process::id()));
    let this = std::env::current_exe().expect("a test knows where it is");
    std::fs::copy(this, &copy).expect("there is room for a copy");
    let mut command = Command::new(&copy);
    command.args([test_of(&work), "--exact", "--nocapture"]).env(CHILD, "1").current_dir("/");
    let output = command.uid(NOBODY).gid(NOBODY).output();
    std::fs::remove_file(&copy).expect("the copy is ours");
    expect_passed(&output.expect("root may start processes for others"));
}

/// The test in which a closure stands.
fn test_of<F>(work: &F) -> &'static str {
    let path = type_name_of_val(work).trim_end_matches("::{{closure}}");
    path.split_once("::").expect("a path begins with the binary").1
}
