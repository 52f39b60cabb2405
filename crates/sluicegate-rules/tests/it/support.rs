//! What several tests here need: rules on a store with a clock of their own, requests, and folders.

use std::path::PathBuf;

use http::Request;
use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::{Rules, RulesFile, Variables};

pub(crate) fn parse(text: &str) -> RulesFile {
    RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn rules(text: &str) -> Rules {
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    Rules::new(&store, parse(text)).expect("memory keeps all")
}

pub(crate) fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("it is a request")
}

/// How many of a hundred requests pass.
pub(crate) async fn passed(rules: &Rules, headers: &[(&str, &str)]) -> usize {
    let mut passed = 0;
    for _ in 0..100 {
        passed += usize::from(rules.limits().decide(&request("/", headers)).await.is_ok());
    }
    passed
}

pub(crate) fn error(result: Result<impl std::fmt::Debug, sluicegate_rules::RulesError>) -> String {
    result.expect_err("it is wrong").to_string()
}

/// A folder that is gone with its test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("sluicegate-sections-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}
