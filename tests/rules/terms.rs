//! Reloads that change what a policy is, in the middle of its window: lower, higher, another name, another algorithm.

use std::time::Duration;

use http::Request;
use sluicegate::MemoryStore;
use sluicegate::clock::ManualClock;
use sluicegate::rules::Rules;
use sluicegate_tests::memory;

use crate::rules::folder::Folder;

const ALGORITHMS: [&str; 4] = ["gcra", "sliding-log", "sliding-counter", "fixed-window"];

fn text(name: &str, algorithm: &str, quota: &str) -> String {
    format!(
        "version: 1
policies:
  {name}: {{ algorithm: {algorithm}, quota: {quota} }}
rules:
  - {{ name: all, limit: {name}, key: everybody }}\n"
    )
}

/// Rules of a file that changes, on a clock that stands in the middle of an hour.
struct Service {
    folder: Folder,
    rules: Rules,
    clock: ManualClock,
    _store: MemoryStore,
}

impl Service {
    fn with(text: &str) -> Self {
        let (store, clock) = memory::store();
        clock.advance(Duration::from_secs(1_800));
        let folder = Folder::with(text);
        Self { rules: folder.open(&store), folder, clock, _store: store }
    }

    fn reload(&self, text: &str) -> String {
        self.folder.swap(text);
        let changes = self.rules.reload().unwrap_or_else(|error| panic!("{error}"));
        changes.expect("it is another file").to_string()
    }

    /// How many requests pass now, of this many.
    async fn passes(&self, requests: usize) -> usize {
        let mut passed = 0;
        for _ in 0..requests {
            passed += usize::from(self.rules.limits().decide(&Request::new(())).await.is_ok());
        }
        passed
    }

    /// How many seconds pass until a request does.
    async fn waits(&self) -> u64 {
        let mut waited = 0;
        loop {
            let request = Request::new(());
            let Err(refused) = self.rules.limits().decide(&request).await else { return waited };
            let wait = refused.refusal(&request).retry_after_seconds().expect("one unit fits");
            waited += wait;
            self.clock.advance(Duration::from_secs(wait));
        }
    }
}

#[tokio::test]
async fn a_lower_limit_finds_what_was_spent_and_a_higher_one_adds_what_it_has_more() {
    for algorithm in ALGORITHMS {
        let service = Service::with(&text("a", algorithm, "100/h"));
        assert_eq!(service.passes(60).await, 60, "{algorithm}");
        let line = service.reload(&text("a", algorithm, "10/h"));
        assert_eq!(line, "changed a 100/h -> 10/h, what was spent counts");
        assert_eq!(service.passes(20).await, 0, "{algorithm}: 60 were spent");
        service.reload(&text("a", algorithm, "200/h"));
        assert_eq!(service.passes(300).await, 140, "{algorithm}: 60 were spent, whatever was between");
    }
}

#[tokio::test]
async fn a_lower_limit_blocks_nobody_for_longer_than_what_was_spent_takes_to_drain() {
    // A bucket and a window owe the 50 units above the lower limit, which come back in five hours.
    for (algorithm, longest) in [
        ("gcra", 5 * 3_600 + 360),
        ("sliding-log", 3_600),
        ("sliding-counter", 2 * 3_600),
        ("fixed-window", 1_800 + 5 * 3_600),
    ] {
        let service = Service::with(&text("a", algorithm, "100/h"));
        assert_eq!(service.passes(60).await, 60);
        service.reload(&text("a", algorithm, "10/h"));
        let waited = service.waits().await;
        assert!((1..=longest).contains(&waited), "{algorithm}: {waited} s");
    }
}

#[tokio::test]
async fn another_algorithm_finds_what_was_spent_under_the_one_before() {
    for before in ALGORITHMS {
        for after in ALGORITHMS.into_iter().filter(|after| *after != before) {
            let service = Service::with(&text("a", before, "100/h"));
            assert_eq!(service.passes(60).await, 60);
            let line = service.reload(&text("a", after, "100/h"));
            assert_eq!(line, format!("changed a 100/h ({before}) -> 100/h ({after}), what was spent counts"));
            let passed = service.passes(100).await;
            assert_eq!(passed, 40, "from {before} to {after}");
        }
    }
}

#[tokio::test]
async fn another_name_is_another_policy_and_takes_nothing_over() {
    for algorithm in ALGORITHMS {
        let service = Service::with(&text("a", algorithm, "10/h"));
        assert_eq!(service.passes(20).await, 10);
        assert_eq!(service.reload(&text("b", algorithm, "10/h")), "added b; removed a");
        assert_eq!(service.passes(20).await, 10, "{algorithm}: nothing was spent under this name");
    }
}

#[tokio::test]
async fn a_file_that_is_wrong_in_its_last_policy_changes_nothing_at_all() {
    let good = text("a", "gcra", "10/h");
    let service = Service::with(&good);
    assert_eq!(service.passes(4).await, 4);
    for last in ["5/fortnight", "999999999999/h", "[5/h, 5/h]"] {
        let wrong = good
            .replace("10/h", "50/h")
            .replace("rules:", &format!("  z: {{ algorithm: sliding-log, quota: {last} }}\nrules:"));
        let wrong = wrong.replace("limit: a", "limit: [a, z]");
        service.folder.swap(&wrong);
        assert!(service.rules.reload().is_err(), "{wrong}");
        assert_eq!(service.passes(1).await, 1, "{wrong}");
    }
    assert_eq!(service.passes(10).await, 3, "ten in all, by the file that was good");
    service.folder.swap(&good);
    assert_eq!(service.rules.reload(), Ok(None));
}
