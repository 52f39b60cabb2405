//! What a server says of itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, DecisionFuture};
use sluicegate_core::wrap::Within;
use sluicegate_tests::around::around;
use sluicegate_tests::memory;

use crate::support::{Answered, RULES, Served, by_name, observed};

#[tokio::test]
async fn it_is_alive_at_once_and_ready_when_the_store_has_answered() {
    let served = Served::start().await;
    assert_eq!(served.get("/healthz").send().await.unwrap().text().await.unwrap(), "alive\n");
    while served.get("/readyz").send().await.unwrap().status() != 200 {}
}

#[tokio::test]
async fn without_an_answer_of_the_store_it_is_not_ready_and_what_decides_in_its_place_does_not_count() {
    let (store, clock) = memory::store();
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let store = around(&store, move |within: &Within, asks: &[Ask<'_>]| match away.load(Ordering::Relaxed) {
        true => DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::Unavailable))),
        false => within.decide(asks),
    });
    let served = Served::of(by_name(store, RULES), clock, |builder| builder).await;
    let answered = Answered::of(served.get("/readyz").send().await.unwrap()).await;
    assert_eq!((answered.status, answered.field("retry-after")), (503, "1"));
    assert!(answered.detail().contains("has not answered"), "{answered:?}");
    is_away.store(false, Ordering::Relaxed);
    while served.get("/readyz").send().await.unwrap().status() != 200 {}
}

#[tokio::test]
async fn metrics_are_those_of_the_program() {
    let served = Served::with(RULES, |builder| builder.metrics(|| "one 1\n".to_owned())).await;
    let shown = served.get("/metrics").send().await.unwrap();
    assert_eq!(shown.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(shown.text().await.unwrap(), "one 1\n");
    assert_eq!(Served::start().await.get("/metrics").send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_wrong_file_is_told_on_the_status_page() {
    let path = std::env::temp_dir().join(format!("sluicegate-server-{}.yaml", std::process::id()));
    std::fs::write(&path, RULES).unwrap();
    let (store, clock) = memory::store();
    let observed = observed(store);
    let variables = sluicegate_rules::Variables::none();
    let rules =
        sluicegate_rules::Rules::builder().open_all_policies().open(&observed, &path, variables).unwrap();
    let served = Served::of(rules, clock, |builder| builder.status(&observed)).await;
    std::fs::write(&path, "version: 1\n").unwrap();
    assert!(served.rules.reload().is_err());
    let page: serde_json::Value = served.get("/status.json").send().await.unwrap().json().await.unwrap();
    assert_eq!(page["notices"][0]["about"], "rules");
    assert_eq!(served.get("/readyz").send().await.unwrap().status(), 200, "the last good rules hold");
    std::fs::remove_file(&path).unwrap();
}
