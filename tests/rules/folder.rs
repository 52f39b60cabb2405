//! A folder with a rules file, gone with its test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::Store;
use sluicegate::rules::{Rules, Variables};

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn with(text: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the number has to be new.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sluicegate-at-work-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let folder = Self(folder);
        folder.swap(text);
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("rules.yaml")
    }

    /// Writes the file where it is, as a shell does.
    pub(crate) fn write(&self, text: &str) {
        fs::write(self.file(), text).expect("the file can be written");
    }

    /// Puts another file in its place, as an editor does.
    pub(crate) fn swap(&self, text: &str) {
        let new = self.0.join("new");
        fs::write(&new, text).expect("the file can be written");
        fs::rename(&new, self.file()).expect("the file can be renamed");
    }

    /// The rules of the file, in force on this store.
    pub(crate) fn open(&self, store: impl Into<Arc<dyn Store>>) -> Rules {
        Rules::open(store, self.file(), Variables::none()).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}
