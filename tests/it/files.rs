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

/// The compiler does not look at a file that no other one names.
#[test]
fn each_file_is_a_module_of_its_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for entry in fs::read_dir(crates).expect("the folder is there") {
        let files = below(&entry.expect("the folder can be read").path().join("src"), "rs");
        let text: String = files.iter().map(|file| fs::read_to_string(file).expect("it is text")).collect();
        for file in files {
            let name = file.file_stem().expect("it has one").to_string_lossy().into_owned();
            let is_root = matches!(&*name, "lib" | "main" | "mod");
            assert!(is_root || text.contains(&format!("mod {name};")), "{} is in no crate", file.display());
        }
    }
}
