//! Rules and logs for tests.

use std::collections::BTreeSet;
use std::io::Cursor;

use serde_json::Value;
use sluicegate_replay::{Replay, ReplayError, ReplayOutcome};
use sluicegate_rules::{RulesFile, Variables};

/// 5,000 lines of elastic/examples (Apache License 2.0), "Common Data Formats/apache_logs".
pub(crate) const ACCESS_LOG: &[u8] = include_bytes!("../access.log.gz");

/// A replay of one rule for all requests.
pub(crate) fn of_policy(policy: &str) -> Replay {
    of_rules(&format!(
        "version: 1\npolicies: {{ all: {policy} }}\nrules: [{{ name: every, limit: all, key: client }}]\n"
    ))
}

pub(crate) fn of_rules(rules: &str) -> Replay {
    let file = RulesFile::parse("rules.yaml", rules, &Variables::none()).expect("the rules are good");
    Replay::new(file).expect("memory can keep them")
}

pub(crate) fn run(replay: &Replay, log: impl AsRef<[u8]>) -> ReplayOutcome {
    try_run(replay, log).expect("the log can be read")
}

pub(crate) fn try_run(replay: &Replay, log: impl AsRef<[u8]>) -> Result<ReplayOutcome, ReplayError> {
    replay.run([("access.log", Cursor::new(log.as_ref().to_vec()))])
}

/// A line of the combined format, in a minute of 2015.
pub(crate) fn line(second: u64, address: &str, path: &str) -> String {
    format!(
        "{address} - - [17/May/2015:10:{:02}:{:02} +0000] \"GET {path} HTTP/1.1\" 200 17 \"-\" \"-\"\n",
        second / 60,
        second % 60
    )
}

/// The names of the fields of the object at this path.
pub(crate) fn fields<'a>(object: &'a Value, path: &str) -> BTreeSet<&'a str> {
    let fields = object.pointer(path).and_then(Value::as_object);
    fields.unwrap_or_else(|| panic!("{path}: {object:#}")).keys().map(String::as_str).collect()
}
