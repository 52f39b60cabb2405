//! Rules that a server cannot follow are named in its log.

use sluicegate_tests::log::Log;

use crate::support::{Served, parse};

const RULES: &str = "
version: 1
policies: { api: { quota: 10/min }, tokens: { quota: 10000/min }, bytes: { quota: 1MB/s } }
in_flight: { pool: { permits: 5 } }
rules:
  - { name: plain, limit: api, key: everybody }
";

const CHANGED: &str = "
  - { name: chat, limit: tokens, key: client, settle: { json: usage.total_tokens }, refund_if: 5xx, in_flight: pool }
  - { name: files, limit: bytes, key: client, bandwidth: down }
";

#[tokio::test]
async fn rules_that_need_the_response_are_warned_of_at_the_start_and_after_a_change() {
    let log = Log::of_this_thread();
    let warned =
        || log.lines().into_iter().filter(|line| line.contains("without effect")).collect::<Vec<_>>();
    let plain = Served::with(RULES, |builder| builder).await;
    assert_eq!(warned(), [""; 0], "nothing needs a response");
    let changed = format!("{RULES}{CHANGED}");
    plain.rules.replace(parse(&changed)).unwrap();
    let parts = [
        "rule \"chat\" has refund_if, settle, in_flight; rule \"files\" has bandwidth: without effect",
        "settle by /v1/reserve and /v1/settle",
    ];
    let lines = warned();
    assert!(lines.len() == 1 && parts.iter().all(|part| lines[0].contains(part)), "{lines:?}");
    let _served = Served::with(&changed, |builder| builder).await;
    assert_eq!(warned().len(), 2, "another server says it as well");
    plain.rules.replace(parse(RULES)).unwrap();
    assert_eq!(warned().len(), 2);
}
