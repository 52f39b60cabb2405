//! Four instances that share a Redis, and reload at different times: nobody gets more than the most generous file lets pass.

use std::time::Duration;

use axum::Router;
use http::{Request, StatusCode};
use sluicegate::clock::ManualClock;
use sluicegate::redis::RedisStore;
use sluicegate_tests::servers::deployments::standalone;

use crate::rules::folder::Folder;
use crate::support::{Client, serve, whole};

const LIMITS: [u64; 3] = [60, 100, 80];

fn text(algorithm: &str, limit: u64) -> String {
    format!(
        "version: 1
policies:
  mark-{limit}: {{ quota: 100000/d }}
  bound: {{ algorithm: {algorithm}, quota: {limit}/d }}
rules:
  - {{ name: all, limit: mark-{limit}, key: client }}
  - {{ name: bound, limit: bound, key: header(x-user) }}\n"
    )
}

/// How many requests of this key pass on this instance, of so many.
async fn passes(client: &mut Client, user: &str, requests: usize) -> u64 {
    let mut passed = 0;
    for _ in 0..requests {
        let answer = whole(client.begin_with(Request::get("/").header("x-user", user), "").await).await;
        assert!(
            matches!(answer.status(), StatusCode::OK | StatusCode::TOO_MANY_REQUESTS),
            "{}",
            answer.status()
        );
        passed += u64::from(answer.status() == StatusCode::OK);
    }
    passed
}

#[tokio::test(flavor = "multi_thread")]
async fn four_instances_that_reload_at_different_times_admit_no_more_than_the_larger_bound() {
    for algorithm in ["gcra", "sliding-log", "sliding-counter", "fixed-window"] {
        let clock = ManualClock::new();
        clock.set(Duration::from_secs(1_800_000_000));
        let mut instances = Vec::new();
        for _ in 0..4 {
            let store = RedisStore::builder()
                .prefix(format!("fleet-{algorithm}"))
                .clock(clock.clone())
                .deadline(Duration::from_secs(20));
            let store = store.connect(&standalone().url()).unwrap();
            store.connected(Duration::from_secs(20)).await.expect("the server is up");
            let folder = Folder::with(&text(algorithm, LIMITS[0]));
            let rules = folder.open(&store);
            let server = serve(Router::new().fallback(async || "hello").layer(rules.layer())).await;
            instances.push((folder, rules, Client::connect(server).await));
        }
        let mut passed = 0;
        for round in 0..48 {
            let (folder, rules, _) = &instances[round % 4];
            folder.swap(&text(algorithm, LIMITS[(round / 4 + 1) % 3]));
            rules.reload().unwrap_or_else(|error| panic!("{error}"));
            let all = instances.iter_mut().map(|(.., client)| passes(client, "ada", 10));
            passed += futures_util::future::join_all(all).await.into_iter().sum::<u64>();
        }
        assert_eq!(passed, 100, "{algorithm}: the larger bound, and nothing for the changes");
    }
}
