//! `sluicegate check`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sluicegate_rules::{RulesFile, Variables};

/// Reports that each file is valid, with warnings; or the errors of all files.
pub(crate) fn run(rules: &[PathBuf], against: Option<&Path>) -> Result<String, String> {
    let old = against.map(read).transpose()?;
    let (mut good, mut wrong) = (String::new(), String::new());
    for path in rules {
        // Writing to a string cannot fail.
        match read(path) {
            Ok(file) => {
                for warning in file.warnings() {
                    _ = writeln!(good, "{warning}");
                }
                _ = writeln!(good, "{}: good", path.display());
                for told in file.rooms().chain(file.deferring()) {
                    _ = writeln!(good, "{}: {told}", path.display());
                }
                if let Some(old) = &old {
                    _ = writeln!(good, "{}: {}", path.display(), file.changes_since(old));
                }
            }
            Err(error) => _ = writeln!(wrong, "{error}"),
        }
    }
    if wrong.is_empty() { Ok(good) } else { Err(wrong.trim_end().to_owned()) }
}

fn read(path: impl AsRef<Path>) -> Result<RulesFile, String> {
    RulesFile::read(path, &Variables::environment().or_placeholders()).map_err(|error| error.to_string())
}
