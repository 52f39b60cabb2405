//! The report of a replay in a browser: it needs no script, no other file and no network, and shows texts of the log as text.

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use serde_json::Value;
use sluicegate::rules::{RulesFile, Variables};
use sluicegate_replay::{Replay, ReplayOutcome};

use crate::operate::browser::Page;

const RULES: &str = r#"
version: 1
policies:
  all: { quota: 20/min burst 10 }
  blog: { algorithm: sliding-log, quota: 6/min }
rules:
  - { name: every, limit: all, key: client }
  - { name: blog, limit: blog, key: [client, header(user-agent)], only_if: { path: "/blog/{*rest}" } }
"#;

const SCRIPT: &str = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>";

/// The real log, and lines of which each part is a script.
fn outcome() -> ReplayOutcome {
    let real = include_bytes!("../../crates/sluicegate-replay/tests/access.log.gz");
    let line = |request: &str, agent: &str| {
        format!("192.0.2.1 - - [18/May/2015:12:05:03 +0000] \"{request}\" 200 17 \"-\" \"{agent}\"\n")
    };
    let hostile = [
        line(&format!("GET /blog/{SCRIPT} HTTP/1.1"), SCRIPT),
        line("GET /blog/a HTTP/1.1", SCRIPT).repeat(30),
        line("GET /%3Cscript%3Ewindow.pwned=1%3C/script%3E HTTP/1.1", "\\x3cscript\\x3e"),
        format!("{SCRIPT}\n\u{202e}javascript:window.pwned=1\n</table></main>{}\n", "x".repeat(500)),
    ];
    let logs = [
        ("access.log.gz".to_owned(), real.to_vec()),
        (format!("{SCRIPT}.log"), hostile.concat().into_bytes()),
    ];
    let rules = RulesFile::parse("rules.yaml", RULES, &Variables::none()).unwrap();
    let replay = Replay::new(rules).unwrap().compare().suggest("0.1%".parse().unwrap());
    replay.run(logs.map(|(name, log)| (name, Cursor::new(log)))).unwrap()
}

#[tokio::test]
async fn the_report_is_read_in_a_browser_wide_and_narrow_light_and_dark() {
    let outcome = outcome();
    assert!(outcome.lines.not_understood == 3 && outcome.rules[0].rejected > 250, "{outcome}");
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/operate"));
    fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    let (report, picture) = (folder.join("replay.html"), folder.join("replay.svg"));
    fs::write(&report, outcome.to_html()).unwrap();
    fs::write(&picture, outcome.to_svg()).unwrap();

    let mut page = Page::new("replay").await;
    for (width, colours) in [(1200, "light"), (390, "dark")] {
        page.looks(width, colours).await;
        page.open(&format!("file://{}", report.display())).await;
        let text = page.text().await;
        for part in [
            "<script>window.pwned=1</script>",
            "Not understood",
            "75.97.9.59",
            "Suggestion for at most 0.1%",
            "sliding-log",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        for (question, answer) in [
            ("typeof window.pwned", Value::from("undefined")),
            ("document.scripts.length + document.images.length", 0.into()),
            // Nothing was asked for beside the page.
            ("performance.getEntriesByType('resource').length", 0.into()),
            ("document.documentElement.scrollWidth <= window.innerWidth", true.into()),
            ("document.querySelectorAll('section').length", 4.into()),
            (
                "[...document.querySelectorAll('figure svg path')].every(path => path.getBBox().width > 0 || !path.getAttribute('d'))",
                true.into(),
            ),
        ] {
            assert_eq!(page.value_of(question).await, answer, "{question} at {width}");
        }
        page.picture(&format!("replay-{width}-{colours}")).await;
        page.open(&format!("file://{}", picture.display())).await;
        assert_eq!(page.value_of("typeof window.pwned").await, "undefined");
        assert_eq!(page.value_of("document.documentElement.tagName").await, "svg");
        page.picture(&format!("replay-svg-{width}-{colours}")).await;
    }
}
