//! A file that changes while its rules are in force: real files, and what is said of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::MemoryStore;
use sluicegate_core::clock::ManualClock;
use sluicegate_rules::{Rules, Variables};
use sluicegate_tests::outages::Scene;

pub(crate) const TEXT: &str =
    "version: 1\npolicies:\n  a: { quota: 5/min }\nrules:\n  - { name: all, limit: a, key: everybody }\n";

/// A folder that is gone with its test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sluicegate-rules-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.join("rules.yaml")
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("the file can be written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Rules {
    let store = MemoryStore::builder().clock(ManualClock::new()).build().expect("the settings are possible");
    Rules::open(&store, path, Variables::none()).unwrap_or_else(|error| panic!("{error}"))
}

async fn passed(rules: &Rules) -> usize {
    let mut passed = 0;
    for _ in 0..50 {
        passed += usize::from(rules.limits().decide(&http::Request::new(())).await.is_ok());
    }
    passed
}

#[tokio::test]
async fn a_file_that_changed_takes_effect_and_says_what_it_changes() {
    let folder = Folder::new();
    folder.write(TEXT);
    let rules = open(&folder.path());
    assert_eq!(passed(&rules).await, 5);
    assert_eq!(rules.reload(), Ok(None), "it is the same text");
    folder.write(&TEXT.replace("5/min", "7/min"));
    let changes = rules.reload().expect("it is good").expect("it is another text");
    assert_eq!(changes.to_string(), "changed a 5/min -> 7/min, what was spent counts");
    assert_eq!(passed(&rules).await, 2);
    folder.write(&TEXT.replace("a: {", "b: {").replace("limit: a", "limit: b"));
    let changes = rules.reload().expect("it is good").expect("it is another text");
    assert_eq!(changes.to_string(), "added b; removed a");
    assert_eq!(passed(&rules).await, 5);
}

#[tokio::test]
async fn a_file_that_is_wrong_empty_or_gone_changes_nothing() {
    let folder = Folder::new();
    folder.write(TEXT);
    let rules = open(&folder.path());
    assert_eq!(passed(&rules).await, 5);
    let last_policy =
        TEXT.replace("rules:", "  b: { quota: 5/fortnight }\nrules:").replace("5/min", "50/min");
    for wrong in ["", "version: 1\n", "version: 1\nrules: []\n", &TEXT[..60], &last_policy] {
        folder.write(wrong);
        assert!(rules.reload().is_err(), "{wrong}");
        assert_eq!(passed(&rules).await, 0, "{wrong}");
    }
    fs::remove_file(folder.path()).expect("it is there");
    assert!(rules.reload().is_err_and(|error| error.to_string().contains("it cannot be read")));
    assert_eq!(passed(&rules).await, 0);
    folder.write(TEXT);
    assert_eq!(rules.reload(), Ok(None), "it is what is in force");
}

/// Waits until so many more requests pass.
async fn eventually_passes(rules: &Rules, expected: usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut all = 0;
    while all < expected {
        assert!(std::time::Instant::now() < deadline, "{all} of {expected} passed");
        all += passed(rules).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(all, expected);
}

#[tokio::test]
async fn a_file_is_followed_however_it_is_swapped() {
    let folder = Folder::new();
    folder.write(TEXT);
    let rules = open(&folder.path());
    rules.follow();
    assert_eq!(passed(&rules).await, 5);
    folder.write(&TEXT.replace("5/min", "8/min"));
    eventually_passes(&rules, 3).await;
    // As an editor does.
    let new = folder.0.join("new");
    fs::write(&new, TEXT.replace("5/min", "10/min")).expect("it can be written");
    fs::rename(&new, folder.path()).expect("it can be renamed");
    eventually_passes(&rules, 2).await;
    // As Kubernetes does: the file is a link to a file behind a link to a folder, which is swapped.
    for (version, quota) in [("v1", "12/min"), ("v2", "15/min")] {
        fs::create_dir(folder.0.join(version)).expect("a folder can be made");
        fs::write(folder.0.join(version).join("rules.yaml"), TEXT.replace("5/min", quota))
            .expect("it can be written");
    }
    let link = |to: &str, from: &str| {
        let temporary = folder.0.join("link");
        std::os::unix::fs::symlink(to, &temporary).expect("a link can be made");
        fs::rename(&temporary, folder.0.join(from)).expect("it can be renamed");
    };
    link("v1", "..data");
    link("..data/rules.yaml", "rules.yaml");
    eventually_passes(&rules, 2).await;
    link("v2", "..data");
    eventually_passes(&rules, 3).await;
}

#[tokio::test]
async fn the_thread_that_follows_ends_with_the_rules() {
    let folder = Folder::new();
    folder.write(TEXT);
    let store = Arc::new(MemoryStore::new());
    let rules = Rules::open(&*store, folder.path(), Variables::none()).expect("it is good");
    rules.follow();
    drop(rules);
    let threads = || {
        fs::read_dir("/proc/self/task").expect("this is Linux").filter_map(Result::ok).any(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("sluicegate-rule"))
        })
    };
    folder.write("an event wakes it");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while threads() {
        assert!(std::time::Instant::now() < deadline, "it goes on");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn what_code_has_put_in_force_stays_until_the_file_changes_or_is_asked_for() {
    let folder = Folder::new();
    folder.write(TEXT);
    let rules = open(&folder.path());
    let file =
        sluicegate_rules::RulesFile::parse("code", &TEXT.replace("5/min", "9/min"), &Variables::none());
    rules.replace(file.expect("it is good")).expect("the store can keep it");
    assert_eq!(passed(&rules).await, 9);
    let changes =
        rules.reload().expect("it is good").expect("another file is in force: it once said the same");
    assert_eq!(changes.to_string(), "changed a 9/min -> 5/min, what was spent counts");
    assert_eq!(rules.reload(), Ok(None));
}

/// What keys start with, across reloads: newcomers start as the file in force says, and a key that is known keeps what it has spent
/// and what it lacked.
#[tokio::test]
async fn a_reload_changes_what_newcomers_start_with_and_gives_known_keys_nothing() {
    let folder = Folder::new();
    let text = |quota: &str| {
        let file = TEXT.replace("5/min", quota).replace("key: everybody", "key: header(x-id)");
        format!("{file}  - {{ name: half, limit: b, key: header(x-id) }}\n")
            .replace("rules:", "  b: { quota: 1000/min }\nrules:")
    };
    folder.write(&text("60/min start 10"));
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build().expect("the settings are possible");
    let rules =
        Rules::open(&store, folder.path(), Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    let passes = async |id: &str| crate::support::passed(&rules, &[("x-id", id)]).await;
    let reload = |quota: &str| {
        folder.write(&text(quota));
        rules.reload().map(|changes| changes.map(|changes| changes.to_string()).unwrap_or_default())
    };
    assert_eq!(passes("ada").await, 10);
    let told = reload("60/min start 20").expect("it is good");
    assert_eq!(told, "changed a 60/min start 10 -> 60/min start 20, what was spent counts; kept b");
    assert_eq!((passes("ada").await, passes("bob").await), (0, 20));
    for (wrong, problem) in [
        ("60/min start 61", "starts a key with 61 units, and its burst is 60"),
        ("60/min start -1", "-1"),
        ("60/min start", "start"),
        ("60/min start 5, algorithm: sliding-counter", "sliding-counter starts full"),
        ("60/min start 5, on_full: inherit", "60/min start 5"),
    ] {
        let error = reload(wrong).expect_err(wrong).to_string();
        assert!(error.contains(problem) && error.contains("rules.yaml:3"), "{wrong}: {error}");
        assert_eq!((passes("bob").await, passes(wrong).await), (0, 20), "{wrong}");
    }
    // Without a start, and with one again: who is known then is no newcomer.
    reload("60/min").expect("it is good");
    assert_eq!((passes("bob").await, passes("eve").await), (0, 60));
    clock.advance(std::time::Duration::from_secs(5));
    reload("60/min start 0").expect("it is good");
    assert_eq!((passes("eve").await, passes("zoe").await), (5, 0));
    clock.advance(std::time::Duration::from_secs(7));
    assert_eq!(passes("zoe").await, 7, "known since it was refused");
}

/// Once its policies were in force, and all else was that of the file before, which could not be put in force again.
#[tokio::test]
async fn a_file_with_permits_that_the_store_cannot_share_changes_nothing() {
    let scene = Scene::new(|builder| builder);
    let folder = Folder::new();
    folder.write(TEXT);
    let rules =
        Rules::open(&scene.store, folder.path(), Variables::none()).unwrap_or_else(|error| panic!("{error}"));
    let policy =
        || rules.store().limiters().get("a").map(|limiter| limiter.policy().to_string()).unwrap_or_default();
    let at_once = |permits: &str| {
        let of_rule = TEXT.replace("limit: a", "limit: a, in_flight: all");
        of_rule.replace("rules:", &format!("in_flight:\n  all: {{ {permits} }}\nrules:"))
    };
    for (text, before) in [(TEXT.to_owned(), None), (at_once("permits: 3"), Some("permits: 3"))] {
        folder.write(&text);
        rules.reload().expect("it is good");
        folder.write(&at_once("permits: 3, shared: true").replace("5/min", "9/min"));
        let error = rules.reload().expect_err("that store shares nothing").to_string();
        assert!(error.contains("cannot share the permits of \"all\""), "{error}");
        assert_eq!(policy(), "a: 5/min (gcra)", "{before:?}");
        folder.write(&text);
        assert_eq!(rules.reload(), Ok(None), "it is what is in force");
    }
}

/// Twelve of twenty are spent, six of ten in the share, then the quota changes.
#[tokio::test]
async fn a_file_says_how_the_keys_of_a_policy_start_after_a_reload() {
    let text = |quota: &str, inherit: &str, mode: &str| {
        format!(
            "version: 1
policies:
  a: {{ quota: {quota} by fixed-window, mode: {mode}{inherit} }}
  b: {{ quota: {quota} by fixed-window }}
rules:
  - {{ name: half, only_if: {{ path: /half }}, limit: a, share: 1/2, key: everybody }}
  - {{ name: whole, only_if: {{ path: /whole }}, limit: a, key: everybody }}
  - {{ name: plain, only_if: {{ path: /plain }}, limit: b, key: everybody }}
"
        )
    };
    let passes = async |rules: &Rules, path: &str, requests: usize| {
        let mut passed = 0;
        for _ in 0..requests {
            let request = http::Request::get(path).body(()).expect("the request is valid");
            passed += usize::from(rules.limits().decide(&request).await.is_ok());
        }
        passed
    };
    for (inherit, of_10, of_40) in [
        ("", 0, 28),
        (", inherit: spent", 0, 28),
        (", inherit: reset", 10, 40),
        (", inherit: as-is", 8, 8),
        (", inherit: proportional", 4, 16),
        (", inherit: additive", 8, 28),
    ] {
        for (quota, left, of_b) in [("10/h", of_10, 0), ("40/h", of_40, 28)] {
            let folder = Folder::new();
            folder.write(&text("20/h", inherit, "enforce"));
            let rules = open(&folder.path());
            for (path, spent) in [("/half", 6), ("/whole", 12), ("/plain", 12)] {
                assert_eq!(passes(&rules, path, spent).await, spent);
            }
            // Neither another option nor another policy starts a key afresh.
            let of_b_alone = text("20/h", inherit, "enforce").replace("b: { quota: 20/h", "b: { quota: 21/h");
            for other in [text("20/h", inherit, "shadow"), of_b_alone] {
                folder.write(&other);
                let line = rules.reload().expect("it is good").expect("it is another text").to_string();
                assert!(line.contains("what was spent counts") && !line.contains("inherit"), "{line}");
            }
            folder.write(&text(quota, inherit, "enforce"));
            let changes = rules.reload().expect("it is good").expect("it is another text");
            let mut all = Vec::new();
            for path in ["/half", "/whole", "/plain"] {
                all.push(passes(&rules, path, 41).await);
            }
            assert_eq!(all, [left / 2, left, of_b], "{quota}{inherit}");
            let is_said = changes.to_string().contains(&format!("by {}", inherit.trim_start_matches(", ")));
            assert_eq!(is_said, !["", ", inherit: spent"].contains(&inherit), "{changes}");
        }
    }
}
