//! Quotas of single keys where instances have different files: no more passes than by the more generous one.

use std::time::Duration;

use http::{Request, Response};
use sluicegate::Store;
use sluicegate::clock::ManualClock;
use sluicegate::redis::RedisStore;
use sluicegate::respond::ProblemJson;
use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate_tests::servers::deployments::standalone;

const ALGORITHMS: [&str; 5] =
    ["gcra", "token-bucket-interval", "sliding-log", "sliding-counter", "fixed-window"];

/// A file under which this key has these quotas, if any, and the others 10 an hour.
fn file(algorithm: &str, own: &str) -> RulesFile {
    let text = format!(
        "version: 1
policies:
  {algorithm}: {{ algorithm: {algorithm}, quota: 10/h, overrides: {{ {own} }} }}
rules:
  - {{ name: all, limit: {algorithm}, key: header(x-user) }}\n"
    );
    RulesFile::parse("rules.yaml", &text, &Variables::none()).unwrap_or_else(|error| panic!("{error}"))
}

/// The answer to a request of this key: its status, and all fields that tell of limits.
async fn answer(rules: &Rules, user: &str) -> (u16, Vec<String>) {
    let request = Request::get("/").header("x-user", user).body(()).unwrap();
    let response = match rules.limits().decide(&request).await {
        Ok(admitted) => admitted.leave(Response::new(())),
        Err(refused) => refused.respond(&request, &ProblemJson::new()).map(|_: bytes::Bytes| ()),
    };
    let names = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"];
    let fields = names
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", response.headers().get(*name)?.to_str().ok()?)));
    (response.status().as_u16(), fields.collect())
}

async fn redis(prefix: &str, clock: &ManualClock) -> RedisStore {
    let store = RedisStore::builder().prefix(prefix).clock(clock.clone()).deadline(Duration::from_secs(20));
    let store = store.connect(&standalone().url()).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    store
}

fn on(store: impl Into<std::sync::Arc<dyn Store>>, file: RulesFile) -> Rules {
    Rules::new(store, file).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_files_that_differ_the_more_generous_is_the_bound() {
    for algorithm in ALGORITHMS {
        let clock = ManualClock::new();
        clock.set(Duration::from_secs(1_800_000_000));
        let [small, large] = ["ada: 7/h", "ada: 12/h"].map(|own| file(algorithm, own));
        let small = on(&redis("own-differ", &clock).await, small);
        let large = on(&redis("own-differ", &clock).await, large);
        let mut passed = 0;
        for round in 0..60 {
            for rules in [&small, &large] {
                // Looks of an operator change nothing, however often they come.
                let request = Request::get("/").header("x-user", "ada").body(()).unwrap();
                rules.explain(&request).await;
                passed += u32::from(answer(rules, "ada").await.0 == 200);
            }
            assert!(passed <= 12, "{algorithm}, round {round}: {passed}");
        }
        assert!(
            passed >= 11,
            "{algorithm}: {passed} of 12: a change of quotas costs a part of a unit at most"
        );
    }
}
