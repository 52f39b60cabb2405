//! Tests that need a process of their own: the test binary started again for one of its tests.

use std::any::type_name_of_val;
use std::ffi::OsStr;
use std::process::Command;

/// Set in a process that was started for one test.
const CHILD: &str = "SLUICEGATE_ALONE";

/// Runs one test of this binary in a process that runs nothing else, with these variables in its environment.
///
/// # Panics
/// When the test is not there or fails.
pub fn run_again<'a>(test: &str, environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>) {
    let this = std::env::current_exe().expect("a test knows where it is");
    let child = Command::new(this).args([test, "--exact", "--nocapture"]).envs(environment).output();
    let output = child.expect("the test binary can be started again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs the work of a test in a process that runs nothing else. It has to be a closure that stands in the test itself,
/// since its type names the test.
///
/// # Panics
/// When the work does.
pub fn alone<F: FnOnce()>(work: F) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let path = type_name_of_val(&work).trim_end_matches("::{{closure}}");
    let (_, test) = path.split_once("::").expect("a path begins with the binary");
    run_again(test, [(CHILD, OsStr::new("1"))]);
}
