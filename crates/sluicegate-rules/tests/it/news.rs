//! News of a file that is read again: who hears of it, and how often.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::limiter::Overrides;
use sluicegate_core::policy::Override;
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tests::memory;

use crate::reload::{Folder, TEXT};

/// Opens the rules of this text, and keeps the first line of each news.
fn heard(folder: &Folder) -> (Rules, Arc<Mutex<Vec<String>>>) {
    folder.write(TEXT);
    let (store, _) = memory::store();
    let rules = Rules::open(&store, folder.path(), Variables::none()).expect("it is good");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&heard);
    rules.listen(move |news| {
        let line = match news {
            Ok(Some(changes)) => changes.to_string(),
            Ok(None) => "right again".to_owned(),
            Err(error) => error.problems()[0].text().to_owned(),
        };
        said.lock().expect("no test panics here").push(line);
    });
    (rules, heard)
}

#[test]
fn each_news_is_heard_once_whoever_reads_the_file() {
    let folder = Folder::new();
    let (rules, heard) = heard(&folder);
    let texts = [TEXT, "", "", "version: 2\n", TEXT, TEXT, &TEXT.replace("5/min", "7/min")];
    for text in texts {
        folder.write(text);
        _ = rules.reload();
        _ = rules.reload();
    }
    let file = RulesFile::parse("code", TEXT, &Variables::none()).expect("it is good");
    rules.replace(file).expect("the store can keep it");
    let heard = heard.lock().expect("no test panics here");
    let [empty, version, right, changed, replaced] = &heard[..] else { panic!("{heard:#?}") };
    assert!(empty.starts_with("the file is empty"), "{empty}");
    assert!(version.contains("\"rules\"") || version.contains("version"), "{version}");
    assert_eq!(right, "right again");
    assert_eq!(changed, "changed a 5/min -> 7/min, what was spent counts");
    assert_eq!(replaced, "changed a 7/min -> 5/min, what was spent counts");
}

#[test]
fn a_listener_explains_while_the_next_change_waits_for_it() {
    let (store, _) = memory::store();
    let file = |quota| RulesFile::parse("code", &TEXT.replace("5/min", quota), &Variables::none());
    let rules = Rules::new(&store, file("5/min").expect("it is good")).expect("the store can keep it");
    let (inner, told) = (rules.clone(), Arc::new(Mutex::new(Vec::new())));
    let threads = Arc::new(Mutex::new(Vec::new()));
    let (started, heard) = (Arc::clone(&threads), Arc::clone(&told));
    let next = Mutex::new(Some(file("7/min").expect("it is good")));
    rules.listen(move |_| {
        if let Some(next) = next.lock().expect("no test panics here").take() {
            let rules = inner.clone();
            let thread = std::thread::spawn(move || rules.replace(next).map(|_| ()));
            started.lock().expect("no test panics here").push(thread);
            // It takes effect, and waits to be told.
            while !explained(&inner).contains("7/min") {
                std::thread::yield_now();
            }
        }
        heard.lock().expect("no test panics here").push(explained(&inner));
    });
    rules.replace(file("6/min").expect("it is good")).expect("the store can keep it");
    let threads = std::mem::take(&mut *threads.lock().expect("no test panics here"));
    threads.into_iter().for_each(|thread| thread.join().expect("it ends").expect("the store can keep it"));
    assert_eq!(told.lock().expect("no test panics here").len(), 2);
}

fn explained(rules: &Rules) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("it starts");
    runtime.block_on(rules.explain(&crate::support::request("/", &[]))).to_string()
}

#[tokio::test]
async fn the_line_names_what_is_kept_changed_added_and_removed_and_overrides_that_stand() {
    let text = |policies: &[&str]| {
        let policy = |policy: &&str| format!("  {policy}\n");
        let name = |policy: &&str| policy.split(':').next().map(str::to_owned).expect("it has a name");
        format!(
            "version: 1\npolicies:\n{}rules:\n  - {{ name: all, limit: [{}], key: everybody }}\n",
            policies.iter().map(policy).collect::<String>(),
            policies.iter().map(name).collect::<Vec<_>>().join(", ")
        )
    };
    let file = |text: &str| RulesFile::parse("rules.yaml", text, &Variables::none()).expect("it is good");
    let (store, _) = memory::store();
    let before = [
        "kept: { quota: 1/min }",
        "login: { quota: [5/min, 20/h] }",
        "other: { quota: 5/min }",
        "quiet: { quota: 5/min }",
        "gone: { quota: 5/min }",
    ];
    let rules = Rules::new(&store, file(&text(&before))).expect("the store can keep it");
    let over = Override::builder("login", "ada").quota("50/min").lasting(Duration::from_secs(600));
    Overrides::of(&store).put(over).await.expect("the policy is there");
    let after = [
        "kept: { quota: 1/min }",
        "login: { quota: [10/min, 20/h] }",
        "other: { quota: 5/min, algorithm: sliding-log }",
        "quiet: { quota: 5/min, hidden: true }",
        "new: { quota: 5/min }",
    ];
    let changes = rules.replace(file(&text(&after))).expect("the store can keep it");
    assert_eq!(
        changes.to_string(),
        "changed login 5/min, 20/h -> 10/min, 20/h, other 5/min (gcra) -> 5/min (sliding-log), quiet in its options, what was \
         spent counts; added new; removed gone; kept kept; overrides stand: login: 50/min, by ada"
    );
}

#[test]
fn a_line_names_twenty_of_a_kind_and_counts_the_others() {
    let policies: String = (0..100).map(|number| format!("  p{number}: {{ quota: 5/min }}\n")).collect();
    let names: Vec<_> = (0..100)
        .map(|number| format!("{{ name: r{number}, group: g, limit: p{number}, key: client }}"))
        .collect();
    let text = format!("version: 1\npolicies:\n{policies}rules: [{}]\n", names.join(", "));
    let file = |text: &str| RulesFile::parse("rules.yaml", text, &Variables::none()).expect("it is good");
    let changes = file(&text).changes_since(&file(TEXT)).to_string();
    assert!(changes.contains("p19 and 80 more; removed a"), "{changes}");
}

/// A panic once ended the thread that follows the file, for good and unseen.
#[test]
fn a_panic_while_the_file_is_read_ends_no_thread_and_the_next_reading_is_done() {
    let folder = Folder::new();
    folder.write(TEXT);
    let rules = Rules::open(&memory::store().0, folder.path(), Variables::none()).expect("it is good");
    let (tell, told) = std::sync::mpsc::channel();
    let panics = std::sync::atomic::AtomicBool::new(true);
    rules.listen(move |news| {
        let text = news.map(|changes| changes.map(ToString::to_string));
        _ = tell.send(text.map_err(ToString::to_string));
        if panics.swap(false, std::sync::atomic::Ordering::Relaxed) {
            panic!("a listener panics");
        }
    });
    rules.follow();
    for quota in ["7/min", "8/min"] {
        folder.write(&TEXT.replace("5/min", quota));
        let changes = told.recv().expect("the thread goes on").expect("it is good").expect("it has changed");
        assert!(changes.contains(quota), "{changes}");
    }
    while rules.has_lost_its_file() {
        std::thread::yield_now();
    }
}

#[cfg(feature = "metrics")]
#[test]
fn reloads_are_counted_and_the_moment_of_the_last_good_one_is_told() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let told = || -> Vec<String> {
        let lines = handle.render();
        let mut lines: Vec<_> =
            lines.lines().filter(|line| line.starts_with("rate_limit_")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = |loaded: u64, wrong: u64, since: u64| {
        vec![
            format!("rate_limit_rules_loaded_timestamp_seconds {since}"),
            format!("rate_limit_rules_reloads_total{{result=\"loaded\"}} {loaded}"),
            format!("rate_limit_rules_reloads_total{{result=\"wrong\"}} {wrong}"),
        ]
    };
    metrics::with_local_recorder(&recorder, || {
        let folder = Folder::new();
        folder.write(TEXT);
        let (store, clock) = memory::store();
        let start = sluicegate_tests::time::START.as_secs();
        let rules = Rules::open(&store, folder.path(), Variables::none()).expect("it is good");
        assert_eq!(told(), expected(0, 0, start));
        clock.advance(Duration::from_secs(100));
        folder.write("");
        for _ in 0..3 {
            assert!(rules.reload().is_err());
        }
        assert_eq!(told(), expected(0, 1, start));
        folder.write(&TEXT.replace("5/min", "7/min"));
        assert!(rules.reload().is_ok());
        assert_eq!(told(), expected(1, 1, start + 100));
        assert_eq!(rules.reload(), Ok(None));
        assert_eq!(told(), expected(1, 1, start + 100));
    });
}

/// Each change says what was in force before it: so the order in which they took effect is known.
#[test]
fn news_is_told_in_the_order_in_which_it_took_effect() {
    let folder = Folder::new();
    let (rules, heard) = heard(&folder);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let rules = &rules;
            scope.spawn(move || {
                for count in 0..50 {
                    let quota = format!("{}/min", 10 + thread * 50 + count);
                    let file = RulesFile::parse("code", &TEXT.replace("5/min", &quota), &Variables::none());
                    rules.replace(file.expect("it is good")).expect("the store can keep it");
                }
            });
        }
    });
    let heard = heard.lock().expect("no test panics here");
    let mut before = "5/min".to_owned();
    for line in &*heard {
        let (old, new) = line
            .strip_prefix("changed a ")
            .and_then(|line| line.strip_suffix(", what was spent counts")?.split_once(" -> "))
            .unwrap_or_else(|| panic!("{line}"));
        assert_eq!(old, before, "{heard:#?}");
        before = new.to_owned();
    }
    assert_eq!(heard.len(), 200);
}
