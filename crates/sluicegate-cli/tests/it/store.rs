//! `sluicegate explain --store`: where quotas stand in a Redis.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_rules::{Rules, RulesFile, Variables};
use sluicegate_tests::servers::Server;

use crate::{command, printed, run};

/// The variables that store.yaml names, for quotas that are in force.
fn variables(url: &str) -> [(&'static str, String); 3] {
    [("REDIS_URL", url.to_owned()), ("DAILY", "1000/d".to_owned()), ("HOURLY", "5/h".to_owned())]
}

/// The exit status and all that is printed.
fn explain(variables: impl IntoIterator<Item = (&'static str, String)>, arguments: &[&str]) -> String {
    let mut command = command(&["explain", "--rules", "store.yaml", "POST", "/login", "--store"]);
    printed(&command.args(arguments).envs(variables).output().expect("the command runs"))
}

/// Decides on requests, as a service does.
fn spend(url: &str, times: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
    runtime.block_on(async {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store.yaml");
        let file = RulesFile::read(path, &Variables::from_iter(variables(url))).expect("the file is good");
        let store = file.connected_store(Duration::from_secs(20)).await.expect("the server is up");
        let rules = Rules::new(store, file.without_store()).expect("Redis keeps all");
        let request = http::Request::post("/login").body(()).expect("it is a request");
        for _ in 0..times {
            drop(rules.limits().decide(&request).await.expect("there is room"));
        }
    });
}

/// All that a server holds.
fn state(server: &Server) -> BTreeMap<String, Vec<u8>> {
    let keys: Vec<String> = server.run("KEYS *");
    keys.into_iter().map(|key| (key.clone(), server.run(&format!("DUMP {key}")))).collect()
}

#[test]
fn explain_asks_the_store_where_each_quota_stands_and_spends_nothing() {
    let server = Server::start();
    let url = server.url();
    assert!(explain(variables(&url), &[]).contains("; 5 of 5 left; 20 of 20 left"));
    assert_eq!(state(&server), BTreeMap::new());
    spend(&url, 5);
    let before = state(&server);
    let said = explain(variables(&url), &[]);
    assert!(said.starts_with("0\nis refused with 429: "), "{said}");
    assert!(
        said.contains(
            "\n  all: asks 1 of all: 1000/d (gcra) for \"everybody\"; 995 of 1000 left, all back after "
        ),
        "{said}"
    );
    let (_, login) = said.split_once("\n  login: ").expect("the rule is there");
    for part in ["; 0 of 5 left, room after ", ", all back after ", "; 15 of 20 left, all back after "] {
        assert!(login.contains(part), "{said}");
    }
    assert!(!before.is_empty() && state(&server) == before);
}

#[test]
fn explain_as_json_says_where_each_quota_stands_in_the_store() {
    let server = Server::start();
    let url = server.url();
    spend(&url, 2);
    let said = explain(variables(&url), &["--json"]);
    let document: Value =
        serde_json::from_str(said.strip_prefix("0\n").expect("it is explained")).expect("it is JSON");
    assert_eq!(document["outcome"], "allowed");
    let stands =
        document["rules"][1]["limits"][0]["asks"]["stands"].as_array().expect("it is a list").clone();
    for (stands, (capacity, hours)) in stands.iter().zip([(5, 1), (20, 24)]) {
        assert_eq!([&stands["capacity"], &stands["remaining"]], [&json!(capacity), &json!(capacity - 2)]);
        for wait in ["room_after_ms", "reset_after_ms"] {
            let wait_ms = stands[wait].as_u64().expect("it is a number");
            assert!((1..=hours * 3_600_000).contains(&wait_ms), "{said}");
        }
    }
    assert_eq!(stands.len(), 2);
}

/// The service goes on with the rules that it has, whatever an operator tries.
#[test]
fn rules_that_are_not_in_force_yet_can_be_explained_and_change_nothing_in_the_store() {
    let server = Server::start();
    spend(&server.url(), 5);
    let before = state(&server);
    let news = [("DAILY", "10/d".to_owned()), ("HOURLY", "8/h".to_owned())];
    let said = explain(variables(&server.url()).into_iter().chain(news), &[]);
    assert!(said.starts_with("0\npasses") && said.contains("; 3 of 8 left"), "{said}");
    assert!(said.contains("; 5 of 10 left"), "{said}");
    assert_eq!(state(&server), before);
}

#[test]
fn a_store_that_gives_no_answer_is_an_error_that_says_why() {
    let away = explain(variables(&Server::reserve(&[]).url()), &[]);
    assert!(
        away.starts_with(
            "1\nstore.yaml: error: the store cannot be reached: there is no connection to Redis: "
        ),
        "{away}"
    );
    assert!(away.contains("refused") && away.lines().count() == 2, "{away}");
    let server = Server::start();
    server.run::<()>("CONFIG SET requirepass secret");
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let refused = explain(variables(&url), &[]);
    assert!(
        refused.starts_with("1\n") && refused.contains("WRONGPASS") && !refused.contains(":wrong@"),
        "{refused}"
    );
}

#[test]
fn a_store_that_cannot_be_asked_from_here_is_an_error() {
    let [_, quotas @ ..] = variables("");
    assert_eq!(
        explain(quotas, &[]),
        "1\nstore.yaml: error: its store needs the environment variable REDIS_URL, which is not set here\n"
    );
    for (file, problem) in [
        ("memory.yaml", "its store is in the memory of the service, and no other process can ask it"),
        ("rules.yaml", "it names no store: "),
    ] {
        let said = printed(&run(&["explain", "--rules", file, "GET", "/", "--store"]));
        assert!(said.starts_with(&format!("1\n{file}: error: {problem}")), "{said}");
    }
}

#[test]
fn inspect_counts_what_is_in_a_redis_by_policy() {
    let server = Server::start();
    spend(&server.url(), 5);
    let said = printed(&run(&["inspect", "--store", &server.url()]));
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[0][0], lines[1][0], lines[1][1]), ("0", "policy", "keys"), "{said}");
    assert!(lines[2..].iter().any(|line| line[..2] == ["all", "1"]), "{said}");
    let away = printed(&run(&["inspect", "--store", "redis://127.0.0.1:1"]));
    assert!(away.starts_with("1\nerror: "), "{away}");
    let wrong = printed(&run(&["inspect", "--store", "http://127.0.0.1"]));
    assert!(wrong.contains("its scheme is not one of"), "{wrong}");
}
