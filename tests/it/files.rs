//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// All files below a folder whose names end so, without those that are built.
pub(crate) fn below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        let is_ours = !path.ends_with("target") && !path.ends_with(".git") && !path.is_symlink();
        if path.is_dir() && is_ours {
            found.extend(below(&path, extension));
        } else if is_ours && path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
    found
}
